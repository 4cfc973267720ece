package tcp

import (
	"net/netip"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// Where all clients of an awake service go through the resolver, those who only query its
// status go to a backend like any other, and don't keep it awake. They get no slot, a full
// backend answers too, and none is woken for them: where no backend is up they are answered
// in its place.

// queries hears a client and reports whether it only queries the status. Heard is false where
// the client went away or was refused first. Protocols in which the server speaks first don't
// get here.
func (p *Port) queries(c *Client) (query, heard bool) {
	defer p.occupy(c).End()
	due := time.Now().Add(p.HeadTime())
	_ = c.conn.SetDeadline(due)
	for {
		action, after := p.Policy().IfDown(p.protocol, c.sent, netip.AddrPort{})
		if after > 0 && c.goesOn(after, due) {
			continue
		}
		if action != proto.NeedMore {
			_ = c.conn.SetDeadline(time.Time{})
			return action != proto.Hold, true
		}
		if len(c.sent) >= proto.MaxHead {
			_ = c.conn.SetDeadline(time.Time{})
			return false, true // the backend may know better
		}
		if !p.hear(c, false) {
			return false, false
		}
	}
}

// connectQuery connects a client who only queries; nil: no backend is up, or none could be reached.
func (p *Port) connectQuery(c *Client) *backend {
	for range directTries {
		picked, ok := p.Queue.PickForQuery(p.Key.PortID)
		if !ok {
			return nil
		}
		made := p.reach(picked)
		if made == nil {
			continue
		}
		server, err := c.replay(made, picked.Address)
		if err == nil {
			return server
		}
		_ = made.Close()
		p.Queue.Avoid(p.Key.PortID, picked.Address)
	}
	return nil
}

// relayQuery relays a client who only queries.
func (p *Port) relayQuery(c *Client, server *backend) {
	p.served(c, server)
	p.Begin(true)
	if !p.Can.Requests || c.local {
		p.start(c, server, relaying{query: true})
		return
	}
	// An HTTP client counts like any other from its first request on that is no probe. It gets
	// no slot then either: it has its backend.
	r := relaying{query: true, exchange: http1.NewExchange()}
	counts := func() {
		c.keepAwake()
		p.Active.Relayed.Add(1)
	}
	r.exchange.Watch(func(head []byte) bool { return !p.Joins(head, netip.AddrPort{}) }, counts)
	r.exchange.Read(http1.Client, c.sent)
	r.exchange.Passed(http1.Client)
	p.start(c, server, r)
}

// retell answers a client that only queries with a backend's answer to another; false: it has
// to ask a backend itself.
func (p *Port) retell(c *Client) bool {
	r := p.Can.Reteller
	if r == nil {
		return false
	}
	q, _, ok := r.Asks(c.sent, p.Policy().Client(netip.AddrPort{}, nil))
	if !ok {
		return false
	}
	fetched := make(chan []byte, 1)
	answer, ok := p.Answers.Recall(r, q, func(answer []byte) { fetched <- answer })
	if !ok {
		return false
	}
	if answer == nil {
		if answer = <-fetched; answer == nil {
			return false
		}
	}
	defer p.occupy(c).End()
	c.awaitHead(p.HeadTime())
	if _, err := c.conn.Write(r.Retell(nil, answer, c.sent)); err != nil {
		return true
	}
	p.counts.QueryAnswered()
	c.line.Answered()
	c.answered = true
	c.drop(q.Used)
	p.classifyFrom(c, true) // it may ping; for anything else it has to come back
	return true
}
