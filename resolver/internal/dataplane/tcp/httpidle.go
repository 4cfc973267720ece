package tcp

import (
	"sync"
	"time"

	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

const (
	// sweepPeriod is how often idle connections are looked for.
	sweepPeriod = time.Second
	// idleTime is how long a connection must have been idle before it is ended, so that what a
	// client sends right after an answer finds it open.
	idleTime = 2 * time.Second
)

// follows are the HTTP connections of a service that are followed. Once new clients go past the
// resolver, idle connections are ended between two requests, so that their clients go past it,
// too.
type follows struct {
	mu    sync.Mutex
	all   map[*followed]struct{}
	armed bool
}

// followed is one of them. The lock of follows guards it.
type followed struct {
	relay *relay.Relay
	ended bool
}

// follow follows a connection of a protocol with requests, whose backend has been sent this much already; nil: it can't be
// followed, or all clients go through the resolver for good.
func (p *Port) follow(sent []byte) *http1.Exchange {
	if p.Route().Balance != "" {
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

// begin follows a relay until end is called, which may have happened already.
func (f *follows) begin(one *followed, r *relay.Relay) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.ended {
		return
	}
	if f.all == nil {
		f.all = map[*followed]struct{}{}
	}
	one.relay = r
	f.all[one] = struct{}{}
}

func (f *follows) end(one *followed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.ended = true
	delete(f.all, one)
}

// EndIdle looks for idle connections from now on, for as long as new clients go past the
// resolver.
func (s *Service) EndIdle(sv *service.Service) {
	f := &s.follows
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed && len(f.all) > 0 && sv.Route().Direct {
		f.armed = true
		time.AfterFunc(sweepPeriod, func() { s.sweep(sv) })
	}
}

func (s *Service) sweep(sv *service.Service) {
	f := &s.follows
	f.mu.Lock()
	f.armed = false
	for one := range f.all {
		one.relay.EndIfIdle(idleTime)
	}
	f.mu.Unlock()
	s.EndIdle(sv)
}
