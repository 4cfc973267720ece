package dataplane

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// directTries is how many servers a client tries before it waits.
	directTries = 3
	// headTimeout bounds how long a client may take to say what it wants.
	headTimeout = 10 * time.Second
	// replayTimeout bounds handing over what was held: a server that takes
	// nothing in is not up.
	replayTimeout = 10 * time.Second
	// farewellTimeout bounds telling a client why it is refused.
	farewellTimeout = 500 * time.Millisecond
	// maxUnread bounds what is read and thrown away of one meanwhile.
	maxUnread = 1 << 20
)

// endedKeepAlive asks a client that has ended its side whether it is still there.
var endedKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 4}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// serveTCP carries one client from its connection to its end.
func (p *servedPort) serveTCP(c *net.TCPConn) {
	defer utilruntime.HandleCrash()
	defer func() { _ = c.Close() }()
	active := &p.service.active
	p.counts.ClientTaken()
	reader, err := conn.NewReader(c)
	if err != nil {
		return
	}
	h := &heldTCP{
		conn: c, reader: reader, max: p.service.route.Load().Hold.MaxBytes,
		budget: p.service.server.held, events: make(chan event, 1),
	}
	reader.Charge(h.budget)
	defer func() { h.release(len(h.sent)) }()
	if p.protocol.WakeOn() == proto.OnData && !p.inspect(h) {
		return
	}
	active.open.Add(1)
	defer func() {
		active.touch(time.Now())
		active.open.Add(-1)
	}()
	server := p.connectNow(h)
	if server == nil {
		server = p.wait(h)
	}
	if server == nil {
		return
	}
	defer p.end()
	p.counts.BytesToServer(len(h.sent))
	h.release(len(h.sent))
	err = forward.Relay(p.service.server.ctx, c, server, p.counts.BytesToServer, p.counts.BytesToClient)
	if err != nil {
		p.service.server.opts.Log.V(1).Info("A connection ended with an error", "error", err.Error())
	}
}

// inspect lets the protocol judge what the client says first; false: that was
// all.
func (p *servedPort) inspect(h *heldTCP) bool {
	_ = h.conn.SetReadDeadline(time.Now().Add(headTimeout))
	for {
		verdict := p.protocol.Inspect(h.sent)
		switch verdict.Action {
		case proto.Hold:
			_ = h.conn.SetReadDeadline(time.Time{})
			return true
		case proto.Refuse:
			p.counts.Refused(string(proto.Unwanted))
			farewell(h.conn, verdict.Answer)
			return false
		case proto.Answer:
			if _, err := h.conn.Write(verdict.Answer); err != nil {
				return false
			}
			h.release(min(max(verdict.Used, 0), len(h.sent)))
			if len(h.sent) > 0 && verdict.Used > 0 {
				continue
			}
		case proto.NeedMore:
		}
		if len(h.sent) >= proto.MaxHead {
			p.counts.Refused(string(proto.Unfinished))
			return false
		}
		chunk, err := h.reader.Next(proto.MaxHead - len(h.sent))
		if err != nil {
			reason := proto.Unfinished
			if errors.Is(err, conn.ErrNoRoom) {
				reason = proto.TooManyBytes
			}
			if reason == proto.TooManyBytes || errors.Is(err, os.ErrDeadlineExceeded) {
				p.counts.Refused(string(reason))
				farewell(h.conn, p.protocol.Refusal(reason))
			}
			return false
		}
		h.sent = append(h.sent, chunk...)
		h.reader.Done()
	}
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
	p.begin()
	for range directTries {
		if server := p.dial(picked.Address); server != nil {
			if replay(h, server) == nil {
				return server
			}
			_ = server.Close()
		}
		queue.Avoid(p.key.name, picked.Address)
		if picked, ok = queue.Pick(p.key.name); !ok {
			break
		}
	}
	p.end()
	return nil
}

// wait holds a client until it has a server, which has been sent what was held;
// nil: the client is gone or refused.
func (p *servedPort) wait(h *heldTCP) *net.TCPConn {
	ticket, err := p.service.queue.Enter(p.key.name, h)
	if err != nil {
		reason := proto.QueueFull
		if errors.Is(err, hold.ErrGone) {
			reason = proto.RouteGone
		}
		farewell(h.conn, p.protocol.Refusal(reason))
		return nil
	}
	for {
		e, here := h.wait()
		if !here {
			if !ticket.Leave() {
				e = <-h.events
				if e.grant.Conn != nil {
					_ = e.grant.Conn.Close()
				}
				ticket.Abandon()
			}
			return nil
		}
		if e.reason != "" {
			part(h.conn, p.protocol.Refusal(e.reason))
			return nil
		}
		server := p.take(e.grant)
		if server != nil {
			if err := replay(h, server); err == nil {
				p.begin()
				ticket.Delivered()
				return server
			}
			_ = server.Close()
		}
		ticket.Back(e.grant.Address)
	}
}

// take connects to a server that was granted; nil: that failed.
func (p *servedPort) take(g hold.Grant) *net.TCPConn {
	if g.Conn != nil {
		return g.Conn.(*net.TCPConn)
	}
	p.service.dials <- struct{}{}
	defer func() { <-p.service.dials }()
	return p.dial(g.Address)
}

func (p *servedPort) dial(address netip.AddrPort) *net.TCPConn {
	server, err := dial(p.service.server.ctx, address, hold.DialTimeout)
	if err != nil {
		return nil
	}
	return server.(*net.TCPConn)
}

// farewell tells a client why it is refused.
func farewell(c *net.TCPConn, text []byte) {
	if len(text) > 0 {
		part(c, text)
	}
}

// part ends a connection so that the client sees its end, and can read what it
// is told: closing one with unread bytes resets it and throws the text away.
func part(c *net.TCPConn, text []byte) {
	_ = c.SetDeadline(time.Now().Add(farewellTimeout))
	if len(text) > 0 {
		if _, err := c.Write(text); err != nil {
			return
		}
	}
	_ = c.CloseWrite()
	_, _ = io.CopyN(io.Discard, c, maxUnread)
}
