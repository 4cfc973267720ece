package dataplane

import (
	"net"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// relaying is how the port's clients are relayed; x may be nil.
func (p *servedPort) relaying(x *http1.Exchange) forward.Options {
	s := p.service.server
	return forward.Options{
		ToServer: p.counts.BytesToServer, ToClient: p.counts.BytesToClient,
		Exchange: x, Kept: s.stalled, HalfClosed: s.opts.TCPHalfClosed, Idle: s.opts.TCPIdle,
	}
}

// relay carries a client that has a server to its end. One that is followed is ended
// when it is quiet.
func (p *servedPort) relay(l *accesslog.Line, client, server *net.TCPConn, x *http1.Exchange) {
	var followed *forward.Relay
	p.relayed(l, forward.Run(p.service.server.ctx, client, server, p.relaying(x), func(r *forward.Relay) {
		if x != nil {
			followed = r
			p.service.follows.begin(r)
			p.service.endIdle()
		}
	}))
	if followed != nil {
		p.service.follows.end(followed)
	}
}

// relayed takes in how a relay has ended.
func (p *servedPort) relayed(l *accesslog.Line, e forward.Ended) {
	l.Carried(e.ToServer, e.ToClient)
	p.leaves(l, string(e.Why))
	if e.Err != nil {
		p.service.server.opts.Log.V(1).Info("A connection ended with an error", "by", e.Why, "error", e.Err.Error())
	}
}
