package dataplane

import (
	"net"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// relaying is how the port's clients are relayed; x may be nil. Withheld is what it says
// not to send yet.
func (p *servedPort) relaying(x *http1.Exchange, withheld []byte) forward.Options {
	s := p.service.server
	return forward.Options{
		ToServer: p.counts.BytesToServer, ToClient: p.counts.BytesToClient,
		Exchange: x, Withheld: withheld, Kept: s.stalled, HalfClosed: s.opts.TCPHalfClosed, Idle: s.opts.TCPIdle,
		Head: p.headTime(),
	}
}

// relay carries a client that has a server to its end. One that is followed is ended
// when it is quiet.
func (p *servedPort) relay(h *heldTCP, server *net.TCPConn, x *http1.Exchange) {
	var followed *forward.Relay
	withheld := h.sent
	h.release(len(h.sent)) // the relay keeps it
	ended := forward.Run(p.service.server.ctx, h.conn, server, p.relaying(x, withheld), func(r *forward.Relay) {
		if x != nil && h.only == nil {
			followed = r
			p.service.follows.begin(r)
			p.service.endIdle()
		}
	})
	if followed != nil {
		p.service.follows.end(followed)
	}
	p.relayed(h.line, ended)
	if ended.Why == forward.ByTurn {
		h.turn(ended)
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
