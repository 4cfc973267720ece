package tcp

import (
	"errors"
	"io"
	"os"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// endedKeepAlive finds out whether a client that has ended its side is still there.
var endedKeepAlive = conn.KeepAlive{Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 4}

// briefTime bounds how long a client is held that would rather be told that the service wakes.
// It is enough for the operator's answer to the call that is made for it, and a second one.
const briefTime = 250 * time.Millisecond

// event is what a client's pause ended with.
type event struct {
	hold.Outcome
	// own is set where the client's own end causes the event, before the queue knows.
	own bool
	// read is set where the wait goes on, but the client sent something.
	read bool
}

// hold has a client wait in the queue; false: it is refused, and told why.
func (p *Port) hold(c *Client) bool {
	atMost := p.protocol.HoldAtMost()
	if waiter := p.Can.Waiter; waiter != nil && waiter.WouldWait(c.sent) {
		c.questions, atMost = newQuestions(waiter, c.sent), 0
	}
	if c.brief {
		c.leaveAt = time.Now().Add(briefTime)
	}
	ticket, err := p.Queue.Hold(p.Key.PortID, nil, atMost)
	if err != nil {
		reason := proto.QueueFull
		if errors.Is(err, hold.ErrGone) {
			reason = proto.RouteGone
		}
		c.line.Refused(string(reason))
		p.refuseWith(c, reason)
		return false
	}
	c.ticket = ticket
	p.Running.Go(func() { p.await(c) })
	return true
}

// await serves a client that waits until it is relayed or gone, or has sent something: then it
// waits on in a new goroutine. All else takes more stack than waiting does, and many clients
// wait.
func (p *Port) await(c *Client) {
	defer utilruntime.HandleCrash()
	c.pause()
	p.goOn(c)
}

// goOn goes on with what ended a client's pause. It must not be inlined, or its variables would be
// on the stack during the pause.
//
//go:noinline
func (p *Port) goOn(c *Client) {
	e, here := c.wait()
	if e.read {
		p.Running.Go(func() { p.await(c) })
		return
	}
	if server := p.deliverHeld(c, e, here); server != nil {
		c.ticket = nil
		p.relay(c, server)
		return
	}
	c.end()
}

// deliverHeld goes on with the event that ended a client's wait, until the client has a
// backend, to which what was held has been sent; nil: the client is gone or refused.
func (p *Port) deliverHeld(c *Client, e event, here bool) *backend {
	for ; ; e, here = c.wait() {
		if e.read {
			continue
		}
		if (!here || e.own) && c.ticket.Leave() {
			if here {
				p.refuse(c.line, e.Refused)
				p.refuseWith(c, e.Refused)
			} else {
				p.Ended(c.line, accesslog.GaveUp)
			}
			return nil
		}
		if !here || e.own {
			<-c.ticket.Ended // which is about to be closed
			e.Outcome = c.ticket.Outcome
		}
		if !here {
			c.takeSlot(e.Release)
			if e.Release.Conn != nil {
				_ = e.Release.Conn.Close()
			}
			c.ticket.Abandon()
			p.Ended(c.line, accesslog.GaveUp)
			return nil
		}
		if e.Refused != "" {
			c.line.Refused(string(e.Refused))
			part(c.conn, p.refusal(c, e.Refused))
			return nil
		}
		if server := p.deliver(c, e.Release); server != nil {
			return server
		}
	}
}

// afterBriefWait is what a client is told whose brief wait is over.
func (p *Port) afterBriefWait() proto.Reason {
	if p.Queue.FindsNothing() {
		return proto.NothingToWake
	}
	return proto.WaitingPage
}

// armOwn sets the time at which the client's own turn comes in its wait, where it has one.
func (c *Client) armOwn() {
	switch {
	case c.questions != nil:
		_ = c.conn.SetReadDeadline(c.questions.due)
	case !c.leaveAt.IsZero():
		_ = c.conn.SetReadDeadline(c.leaveAt)
	}
}

// pause waits until wait has something to do, on the stack that a goroutine begins with. It may
// return before that, as for a client that has sent all that is kept.
func (c *Client) pause() {
	c.armOwn()
	if !c.ended && len(c.sent) < c.max {
		_ = c.conn.WaitReadable(c.ticket.Ended)
	}
}

// wait waits until the client is released to a backend or refused, or has sent something,
// which is kept; false: it went away.
func (c *Client) wait() (e event, here bool) {
	select {
	case <-c.ticket.Ended:
		return event{Outcome: c.ticket.Outcome}, true
	default:
	}
	c.full = false
	aborts := c.port.Policy().Aborts
	c.armOwn()
	for {
		chunk, gone, err := c.next(aborts)
		switch {
		case gone:
			return event{}, false
		case err == nil:
			c.take(chunk)
			if c.questions != nil {
				c.questions.heard(c)
			}
			return event{read: true}, true
		case errors.Is(err, conn.ErrInterrupted):
			return event{Outcome: c.ticket.Outcome}, true
		case errors.Is(err, os.ErrDeadlineExceeded):
			if reason := c.ownTurn(); reason != "" {
				return event{Outcome: hold.Outcome{Refused: reason}, own: true}, true
			}
		case errors.Is(err, conn.ErrNoRoom):
			c.full = true
		case errors.Is(err, io.EOF) && len(c.sent) > 0 && !aborts:
			// The client has sent all and may still listen. The relay reads this end again and
			// passes it on. Where the client doesn't listen any more, only keep-alive finds
			// out, once its host has forgotten the connection.
			c.ended = true
			_ = c.conn.Watch(endedKeepAlive)
		default:
			return event{}, false
		}
	}
}

// next waits until the client has sent something, which is read if there is room for it, or is
// gone.
func (c *Client) next(aborts bool) (chunk []byte, gone bool, err error) {
	room := c.max - len(c.sent)
	if c.ended || c.full || room <= 0 {
		// The rest stays in the kernel, which slows the client down.
		err = c.conn.WaitGone(aborts, c.ticket.Ended)
		return nil, err == nil, err
	}
	if err = c.conn.WaitReadable(c.ticket.Ended); err == nil {
		chunk, err = c.reader.Next(room)
	}
	return chunk, false, err
}

// ownTurn asks a client to wait for longer, or is why it is refused: its own time is over.
func (c *Client) ownTurn() proto.Reason {
	if c.questions == nil {
		return c.port.afterBriefWait()
	}
	if !c.questions.ask(c.conn) {
		return proto.TimedOut
	}
	_ = c.conn.SetReadDeadline(c.questions.due)
	return ""
}
