package dataplane

import (
	"errors"
	"net"
	"net/netip"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// directTries is how many servers a client tries before it waits.
	directTries = 3
	// replayTimeout bounds handing over what was held: a server that takes
	// nothing in is not up.
	replayTimeout = 10 * time.Second
)

// endedKeepAlive asks a client that has ended its side whether it is still there.
var endedKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 4}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// serveTCP carries one client from its connection to its end, or until it waits.
func (p *servedPort) serveTCP(c *net.TCPConn, from netip.AddrPort) {
	defer utilruntime.HandleCrash()
	h, err := p.service.server.hold(c, from)
	if err != nil {
		_ = c.Close()
		return
	}
	p.counts.ClientTaken()
	p.wanted(h.line)
	proxy := &p.service.route.Load().Proxy
	h.announced = proxy.Send
	if !p.introduce(h, proxy) || !p.carry(h, p.known.Load().rules) {
		h.end()
	}
}

// hold makes a client of a connection.
func (s *Server) hold(c *net.TCPConn, from netip.AddrPort) (*heldTCP, error) {
	reader, err := conn.NewReader(c)
	if err != nil {
		return nil, err
	}
	reader.Charge(s.held)
	return &heldTCP{conn: c, reader: reader, budget: s.held, line: s.opts.AccessLog.Begin(from), events: make(chan event, 1), endpoints: endpoints{source: from, destination: endpointOf(c.LocalAddr())}}, nil
}

// carry carries a client from the first thing it said, part of which may have been
// read already, to its end; true: it waits, in a goroutine that sees to its end.
func (p *servedPort) carry(h *heldTCP, rules *guard.Rules) (waits bool) {
	h.max = p.service.route.Load().Hold.MaxBytes
	if !p.enter(h, rules) {
		return false
	}
	h.port = p
	if !p.wants(h) || p.service.route.Load().AwaitsWake() && !p.mayAsk(h) {
		return false
	}
	h.open = true
	p.service.active.open.Add(1)
	if server := p.connectNow(h); server != nil {
		p.carryTo(h, server)
		return false
	}
	return p.mayAsk(h) && p.wait(h)
}

// carryTo carries a client that has its server to its end.
func (p *servedPort) carryTo(h *heldTCP, server *net.TCPConn) {
	h.visit.Served()
	defer p.end(false)
	h.served(server)
	exchange := h.exchange
	if h.only == nil {
		exchange = p.follow(h.sent)
	}
	p.counts.BytesToServer(h.passes)
	h.release(h.passes)
	if h.ended {
		_ = listener.Watch(h.conn, listener.KeepAlive)
	}
	p.relay(h, server, exchange)
}

// wants says that a client is to be connected to a server; false: all that it
// wanted is done, or it is gone.
func (p *servedPort) wants(h *heldTCP) bool {
	k := p.known.Load()
	if h.local {
		if !p.serveQuery(h) {
			part(h.conn, nil)
		}
		return false
	}
	if !k.sorts {
		return !k.judges || p.handshake(h)
	}
	query, heard := p.asks(h)
	if !heard || query && h.only == nil && (p.retell(h) || p.serveQuery(h)) {
		return false
	}
	// At a front of HTTP whoever probes is a client like any other while a server is up:
	// its next request may be for another service.
	return !query || h.only != nil || p.handshake(h)
}

// connectNow connects a client that needs not wait; nil: it has to. The client
// counts as relayed from the first try on, or a service might be put to sleep
// under it.
func (p *servedPort) connectNow(h *heldTCP) *net.TCPConn {
	queue := p.service.queue
	picked, ok := queue.Pick(p.key.name)
	if !ok {
		return nil
	}
	p.begin(false)
	for range directTries {
		h.sit(picked)
		if server := p.reach(picked); server != nil {
			if replay(h, server) == nil {
				return server
			}
			_ = server.Close()
			queue.Avoid(p.key.name, picked.Address)
		}
		if picked, ok = queue.Pick(p.key.name); !ok {
			break
		}
	}
	h.sit(hold.Grant{})
	p.end(false)
	return nil
}

// wait has a client wait until it has a server; false: it may not.
func (p *servedPort) wait(h *heldTCP) bool {
	atMost := p.protocol.HoldAtMost()
	if h.questions = newQuestions(p.protocol, h.sent); h.questions != nil {
		atMost = 0
	}
	ticket, err := p.service.queue.Enter(p.key.name, h, atMost)
	if err != nil {
		reason := proto.QueueFull
		if errors.Is(err, hold.ErrGone) {
			reason = proto.RouteGone
		}
		h.line.Refused(string(reason))
		p.farewell(h, reason)
		return false
	}
	p.waitOn(h, ticket)
	return true
}

// waitOn has a client wait in a goroutine that has done nothing before. All else takes
// more of the stack than waiting does, and many wait.
func (p *servedPort) waitOn(h *heldTCP, ticket *hold.Ticket) {
	p.service.server.wg.Go(func() { p.await(h, ticket) })
}

// await carries a client that waits to its end, or until it has said something.
func (p *servedPort) await(h *heldTCP, ticket *hold.Ticket) {
	defer utilruntime.HandleCrash()
	e, here := h.wait()
	if e.read {
		p.waitOn(h, ticket)
		return
	}
	if server := p.granted(h, ticket, e, here); server != nil {
		p.carryTo(h, server)
	}
	h.end()
}

// granted goes on with what a client's wait ended with until it has a server, which
// has been sent what was held; nil: the client is gone or refused.
func (p *servedPort) granted(h *heldTCP, ticket *hold.Ticket, e event, here bool) *net.TCPConn {
	for ; ; e, here = h.wait() {
		if e.read {
			continue
		}
		if (!here || e.own) && ticket.Leave() {
			if here {
				p.refuse(h.line, e.reason)
				p.farewell(h, e.reason)
			} else {
				p.leaves(h.line, accesslog.GaveUp)
			}
			return nil
		}
		if e.own {
			e = h.await()
		}
		if !here {
			e = h.await()
			h.sit(e.grant)
			if e.grant.Conn != nil {
				_ = e.grant.Conn.Close()
			}
			ticket.Abandon()
			p.leaves(h.line, accesslog.GaveUp)
			return nil
		}
		if e.reason != "" {
			h.line.Refused(string(e.reason))
			part(h.conn, p.refusal(h, e.reason))
			return nil
		}
		h.sit(e.grant)
		failed := e.grant.Address
		server, began, err := p.take(e.grant)
		if err != nil && !blames(err) {
			p.unreached(e.grant, began, err)
			failed = netip.AddrPort{}
		}
		h.settle()
		if server != nil {
			if err := replay(h, server); err == nil {
				p.begin(false)
				ticket.Delivered()
				return server
			}
			_ = server.Close()
		}
		h.sit(hold.Grant{})
		ticket.Back(failed)
	}
}

// take connects to a server that was granted.
func (p *servedPort) take(g hold.Grant) (server *net.TCPConn, began time.Time, err error) {
	if g.Conn != nil {
		return g.Conn.(*net.TCPConn), began, nil
	}
	p.service.dials <- struct{}{}
	defer func() { <-p.service.dials }()
	began = time.Now()
	server, err = p.dial(g)
	return server, began, err
}

// reach connects to a server that was picked; nil: that failed, as the queue knows.
func (p *servedPort) reach(g hold.Grant) *net.TCPConn {
	began := time.Now()
	server, err := p.dial(g)
	if err != nil {
		p.unreached(g, began, err)
		return nil
	}
	return server
}

// unreached takes in why a client who began to connect then could not.
func (p *servedPort) unreached(g hold.Grant, began time.Time, err error) {
	switch {
	case blames(err):
		p.service.queue.Avoid(p.key.name, g.Address)
	case !conn.Local(err):
		p.service.queue.Silent(p.key.name, g, began)
	}
}

// blames says that an error tells of the server: not of this host, and not of one
// packet that was lost.
func blames(err error) bool {
	var network net.Error
	lost := errors.As(err, &network) && network.Timeout()
	return !lost && !conn.Local(err)
}

func (p *servedPort) dial(g hold.Grant) (*net.TCPConn, error) {
	c, err := dial(p.service.server.ctx, g.Address, hold.DialTimeout)
	if err != nil {
		return nil, err
	}
	g.Reached(time.Now())
	return c.(*net.TCPConn), nil
}
