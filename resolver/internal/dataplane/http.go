package dataplane

import (
	"sync"
	"time"

	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

const (
	// sweepPeriod is how often idle connections are looked for.
	sweepPeriod = time.Second
	// quietTime is how long nothing must have been under way before a connection is
	// ended, so that what a client sends right after an answer finds it open.
	quietTime = 2 * time.Second
)

// follows are the HTTP connections of a service that are followed. Once new clients
// go past the resolver, those that are idle between requests are ended, so that
// their clients do, too.
type follows struct {
	mu    sync.Mutex
	all   map[*forward.Relay]struct{}
	armed bool
}

// follow follows a connection whose server has been sent this much already; nil: it
// can't be followed, or all clients go through the resolver for good.
func (p *servedPort) follow(sent []byte) *http1.Exchange {
	if _, is := p.protocol.(http1.Protocol); !is || p.service.route.Load().Balance != "" {
		return nil
	}
	x := http1.NewExchange()
	x.Read(http1.Client, sent)
	x.Passed(http1.Client)
	if x.Lost() {
		return nil
	}
	return x
}

// begin follows a relay until end is called.
func (f *follows) begin(r *forward.Relay) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*forward.Relay]struct{}{}
	}
	f.all[r] = struct{}{}
}

func (f *follows) end(r *forward.Relay) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, r)
}

// endIdle looks for idle connections from now on, for as long as there is reason
// to.
func (sv *service) endIdle() {
	f := &sv.follows
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed && len(f.all) > 0 && sv.route.Load().Direct {
		f.armed = true
		time.AfterFunc(sweepPeriod, sv.sweep)
	}
}

func (sv *service) sweep() {
	f := &sv.follows
	f.mu.Lock()
	f.armed = false
	for r := range f.all {
		r.EndIfQuiet(quietTime)
	}
	f.mu.Unlock()
	sv.endIdle()
}
