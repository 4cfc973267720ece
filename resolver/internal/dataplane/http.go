package dataplane

import (
	"net"
	"sync"
	"time"

	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// sweepPeriod is how often idle connections are looked for.
const sweepPeriod = time.Second

// follows are the HTTP connections of a service that are followed. Once new clients
// go past the resolver, those that are idle between requests are ended, so that
// their clients do, too.
type follows struct {
	mu    sync.Mutex
	all   map[*forward.HTTP]struct{}
	armed bool
}

// follow follows a connection whose server has been sent something already; nil:
// it can't be followed, or all clients go through the resolver for good.
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

// relay carries a client that has a server to its end.
func (p *servedPort) relay(client, server *net.TCPConn, x *http1.Exchange) error {
	ctx := p.service.server.ctx
	if x == nil {
		return forward.Relay(ctx, client, server, p.counts.BytesToServer, p.counts.BytesToClient)
	}
	h := forward.NewHTTP(client, server, x, p.counts.BytesToServer, p.counts.BytesToClient)
	p.service.beginFollowing(h)
	defer p.service.endFollowing(h)
	quiet, err := h.Relay(ctx)
	if quiet {
		p.counts.IdleEnded()
	}
	return err
}

func (sv *service) beginFollowing(h *forward.HTTP) {
	f := &sv.follows
	f.mu.Lock()
	if f.all == nil {
		f.all = map[*forward.HTTP]struct{}{}
	}
	f.all[h] = struct{}{}
	f.mu.Unlock()
	sv.endIdle()
}

func (sv *service) endFollowing(h *forward.HTTP) {
	f := &sv.follows
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, h)
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
	if sv.route.Load().Direct {
		now := time.Now()
		for h := range f.all {
			h.EndIfQuiet(now)
		}
	}
	f.mu.Unlock()
	sv.endIdle()
}
