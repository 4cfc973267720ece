package tcp

import (
	"net/netip"
	"time"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// noRules are for a load balancer's own connections.
var noRules = &guard.Rules{}

// admit has a client relayed, or held in the service's queue, by the port's policy and the rules
// of where it came in. Part of its first bytes may have been read already. False: the client was
// refused, and told why, or answered in the backend's place, or is gone.
func (p *Port) admit(c *Client, k *service.Policy, rules *guard.Rules) bool {
	r := p.Route()
	c.max = r.Hold.MaxBytes
	if c.local {
		rules = noRules
	}
	stay, ok := p.takePlace(c.line, c.source.Addr(), rules)
	if !ok {
		return false
	}
	if !c.begin(p, stay) {
		p.refuse(c.line, proto.TooManyBytes)
		p.refuseWith(c, proto.TooManyBytes)
		return false
	}
	if c.local || k.Classifies || k.ClassifiesQueries {
		switch goesOn, query := p.wants(c, k); {
		case query != nil:
			p.relayQuery(c, query)
			return true
		case !goesOn:
			return false
		}
		r, k = p.Route(), p.Policy() // the client took its time
	}
	sleeps := r.AwaitsWake()
	if sleeps && !p.mayWait(c, k.Rules) {
		return false
	}
	c.keepAwake()
	if !sleeps {
		if server := p.connectNow(c); server != nil {
			p.relay(c, server)
			return true
		}
		if !p.mayWait(c, p.Policy().Rules) {
			return false
		}
	}
	return p.hold(c)
}

// takePlace takes a connection's files, and begins its stay.
func (p *Port) takePlace(l *accesslog.Line, from netip.Addr, rules *guard.Rules) (stay guard.Stay, ok bool) {
	reason := proto.TooManyConnections
	if p.TakeConnection() {
		if stay, reason = p.Guard.Admit(rules, from, p.Held); reason == "" {
			return stay, true
		}
		p.GiveConnection()
	}
	p.refuse(l, reason)
	return stay, false
}

// wants finds out what a client wants. One that goes on wants a backend to play on. Query is
// the backend of a client that only queries. With neither the client is done or gone.
func (p *Port) wants(c *Client, k *service.Policy) (goesOn bool, query *backend) {
	if c.local {
		if query = p.connectQuery(c); query == nil {
			part(c.conn, nil)
		}
		return false, query
	}
	if !k.ClassifiesQueries {
		return p.handshake(c), nil
	}
	queries, heard := p.queries(c)
	// At a front of HTTP a probe is relayed like any other request while a backend is up: the
	// client's next request may be for another service.
	follows := c.front != nil && c.front.only != nil
	switch {
	case !heard:
		return false, nil
	case !queries || follows:
		return true, nil
	case p.retell(c):
		return false, nil
	}
	if query = p.connectQuery(c); query != nil {
		return false, query
	}
	c.ifDown = p.Can.Requests
	return p.handshake(c), nil
}

// handshake lets a client say what it wants; false: it doesn't want the service, or may not
// have it.
func (p *Port) handshake(c *Client) bool {
	switch reason := c.stay.Hold(); reason {
	case "":
	case proto.Denied:
		p.deny(c, reason)
		return false
	default:
		p.refuse(c.line, reason)
		return false
	}
	defer p.occupy(c).End()
	return p.classify(c)
}

// mayWait reports whether a client may wake the service or wait for it, by the port's rules as
// they are now. One that may not is refused.
func (p *Port) mayWait(c *Client, rules *guard.Rules) bool {
	now, refused := time.Now(), proto.Reason("")
	if !c.local {
		refused = rules.Refuses(now)
	}
	switch reason := c.stay.Ask(now, refused); reason {
	case "":
		return true
	case proto.Denied, proto.Maintenance:
		p.deny(c, reason)
	default:
		p.refuse(c.line, reason)
		p.refuseWith(c, reason)
	}
	return false
}

// deny refuses a client that may not wake the service, or that nobody may wake now. In protocols with requests the refusal
// follows the client's first request; other clients are closed unread.
func (p *Port) deny(c *Client, why proto.Reason) {
	if p.Can.Requests {
		if reason := c.stay.Hear(); reason != "" {
			p.refuse(c.line, reason)
			return
		}
		if _, heard := p.queries(c); !heard {
			return
		}
	}
	p.refuse(c.line, why)
	p.refuseWith(c, why)
}
