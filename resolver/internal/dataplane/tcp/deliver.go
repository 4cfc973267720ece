package tcp

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

const (
	// directTries is how many backends a client tries before it waits.
	directTries = 3
	// replayTimeout bounds replaying what was held: a backend that doesn't read is not up.
	replayTimeout = 10 * time.Second
)

// backend is a client's connection to its backend, to which what was held has been sent.
type backend struct {
	conn    *conn.Stream
	address netip.AddrPort
	// passed is how much of what was held was sent. Exchange has read all of it; nil: the
	// connection isn't followed so far.
	passed   int
	exchange *http1.Exchange
	// waited is set where the client was held before.
	waited bool
	// answered ends its turn among the clients that were held; nil: it has none.
	answered func()
}

// connectNow connects a client that needs not wait; nil: it has to. The client counts as
// relayed from the first try on, or the service could be put to sleep meanwhile.
func (p *Port) connectNow(c *Client) *backend {
	picked, ok := p.Queue.Pick(p.Key.PortID)
	if !ok && !c.local && !c.stay.Permitted() {
		picked, ok = p.Queue.PickUnasked(p.Key.PortID)
	}
	if !ok {
		return nil
	}
	p.Begin(false)
	for range directTries {
		c.takeSlot(picked)
		if made := p.reach(picked); made != nil {
			server, err := c.replay(made, picked.Address)
			if err == nil {
				return server
			}
			_ = made.Close()
			p.Queue.Avoid(p.Key.PortID, picked.Address)
		}
		if picked, ok = p.Queue.Pick(p.Key.PortID); !ok {
			break
		}
	}
	c.takeSlot(hold.Release{})
	p.End(false)
	return nil
}

// deliver connects a client to the backend that it was released to, and sends what was held; nil:
// that failed, and the client waits again.
func (p *Port) deliver(c *Client, g hold.Release) *backend {
	c.slot = g.Slot
	made, failed := g.Conn, g.Address
	if made == nil {
		made, failed = p.reachReleased(g)
	}
	if c.questions != nil {
		c.awaitReply()
	}
	if made != nil {
		server, err := c.replay(made, g.Address)
		if err == nil {
			p.Begin(false)
			server.waited = true
			if c.ticket.Delivered() {
				server.answered = c.ticket.Answered
			}
			return server
		}
		_ = made.Close()
	}
	c.takeSlot(hold.Release{})
	c.ticket.Back(failed)
	return nil
}

// reach connects to a backend that was picked; nil: that failed, as the queue knows.
func (p *Port) reach(g hold.Release) *conn.Stream {
	began := time.Now()
	made, err := p.dial(g)
	if err != nil {
		p.unreached(g, began, err)
		return nil
	}
	return made
}

// reachReleased connects to the backend that a held client was released to; nil: that failed.
// Failed is the backend, which is to blame if the client can't be delivered; the zero value where
// it is not to blame.
func (p *Port) reachReleased(g hold.Release) (made *conn.Stream, failed netip.AddrPort) {
	defer p.tcp.dial()()
	began := time.Now()
	made, err := p.dial(g)
	if err != nil && !blames(err) {
		p.unreached(g, began, err)
		return nil, netip.AddrPort{}
	}
	return made, g.Address
}

// unreached takes in the error with which a client could not connect.
func (p *Port) unreached(g hold.Release, began time.Time, err error) {
	switch {
	case blames(err):
		p.Queue.Avoid(p.Key.PortID, g.Address)
	case !conn.Local(err):
		p.Queue.Silent(p.Key.PortID, g, began)
	}
}

// blames reports whether an error is the backend's fault: not this host's, and not that of a
// single packet that was lost.
func blames(err error) bool {
	var network net.Error
	lost := errors.As(err, &network) && network.Timeout()
	return !lost && !conn.Local(err)
}

func (p *Port) dial(g hold.Release) (*conn.Stream, error) {
	made, err := conn.Dial(p.Context, g.Address, hold.DialTimeout)
	if err != nil {
		return nil, err
	}
	g.Reached(time.Now())
	return made, nil
}

// replay sends a backend what was held. The client keeps it for another backend, in case this
// one fails.
func (c *Client) replay(made *conn.Stream, address netip.AddrPort) (*backend, error) {
	var first []byte
	if c.announced {
		var err error
		if first, err = c.announcement(); err != nil {
			return nil, err
		}
	}
	passed, x := c.pass()
	server := &backend{conn: made, address: address, passed: passed, exchange: x}
	if len(first)+passed == 0 {
		return server, nil
	}
	all := c.sent[:passed]
	if len(first) > 0 {
		all = append(first, all...)
	}
	_ = made.SetWriteDeadline(time.Now().Add(replayTimeout))
	if _, err := made.Write(all); err != nil {
		return nil, err
	}
	return server, made.SetWriteDeadline(time.Time{})
}
