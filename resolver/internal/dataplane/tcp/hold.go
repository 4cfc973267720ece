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

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// event ends a wait.
type event struct {
	release hold.Release
	reason  proto.Reason
	// own is set where the client's own end causes the event, before the queue knows.
	own bool
	// read is set where there is no event, but the client sent something.
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
	ticket, err := p.Queue.Hold(p.Key.PortID, c, atMost)
	if err != nil {
		reason := proto.QueueFull
		if errors.Is(err, hold.ErrGone) {
			reason = proto.RouteGone
		}
		c.line.Refused(string(reason))
		p.refuseWith(c, reason)
		return false
	}
	p.Running.Go(func() { p.await(c, ticket) })
	return true
}

// await serves a client that waits until it is relayed or gone, or has sent something: then it
// waits on in a new goroutine. All else takes more stack than waiting does, and many clients
// wait.
func (p *Port) await(c *Client, ticket *hold.Ticket) {
	defer utilruntime.HandleCrash()
	c.pause()
	p.goOn(c, ticket)
}

// goOn goes on with what ended a client's pause. It must not be inlined, or its variables would be
// on the stack during the pause.
//
//go:noinline
func (p *Port) goOn(c *Client, ticket *hold.Ticket) {
	e, here := c.wait()
	if e.read {
		p.Running.Go(func() { p.await(c, ticket) })
		return
	}
	if server := p.deliverHeld(c, ticket, e, here); server != nil {
		p.relay(c, server)
		return
	}
	c.end()
}

// deliverHeld goes on with the event that ended a client's wait, until the client has a
// backend, to which what was held has been sent; nil: the client is gone or refused.
func (p *Port) deliverHeld(c *Client, ticket *hold.Ticket, e event, here bool) *backend {
	for ; ; e, here = c.wait() {
		if e.read {
			continue
		}
		if (!here || e.own) && ticket.Leave() {
			if here {
				p.refuse(c.line, e.reason)
				p.refuseWith(c, e.reason)
			} else {
				p.Ended(c.line, accesslog.GaveUp)
			}
			return nil
		}
		if e.own {
			e = c.await()
		}
		if !here {
			e = c.await()
			c.takeSlot(e.release)
			if e.release.Conn != nil {
				_ = e.release.Conn.Close()
			}
			ticket.Abandon()
			p.Ended(c.line, accesslog.GaveUp)
			return nil
		}
		if e.reason != "" {
			c.line.Refused(string(e.reason))
			part(c.conn, p.refusal(c, e.reason))
			return nil
		}
		c.slot = e.release.Slot
		made, failed := e.release.Conn, e.release.Address
		if made == nil {
			made, failed = p.reachReleased(e.release)
		}
		if c.questions != nil {
			c.awaitReply()
		}
		if made != nil {
			server, err := c.replay(made, e.release.Address)
			if err == nil {
				p.Begin(false)
				server.waited = true
				if ticket.Delivered() {
					server.answered = ticket.Answered
				}
				return server
			}
			_ = made.Close()
		}
		c.takeSlot(hold.Release{})
		ticket.Back(failed)
	}
}

// afterBriefWait is what a client is told whose brief wait is over.
func (p *Port) afterBriefWait() proto.Reason {
	if p.Queue.FindsNothing() {
		return proto.NothingToWake
	}
	return proto.WaitingPage
}

// Released implements hold.Client.
func (c *Client) Released(g hold.Release) { c.call(event{release: g}) }

// Refused implements hold.Client.
func (c *Client) Refused(reason proto.Reason) { c.call(event{reason: reason}) }

// call ends the client's wait. The deadline is set first: once the event is there, the client's
// goroutine sets the deadlines again.
func (c *Client) call(e event) {
	c.deadline.Lock()
	c.called = true
	_ = c.conn.SetReadDeadline(past)
	c.deadline.Unlock()
	c.events <- e
}

// arm sets the time at which the next read ends by itself, unless it ends at once.
func (c *Client) arm(at time.Time) {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	if !c.called {
		_ = c.conn.SetReadDeadline(at)
	}
}

// armOwn sets the time at which the client's own turn comes in its wait, where it has one.
func (c *Client) armOwn() {
	switch {
	case c.questions != nil:
		c.arm(c.questions.due)
	case !c.leaveAt.IsZero():
		c.arm(c.leaveAt)
	}
}

// await waits for an event that is about to come.
func (c *Client) await() event {
	e := <-c.events
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.called = false
	_ = c.conn.SetReadDeadline(time.Time{})
	return e
}

// pause waits until wait has something to do, on the stack that a goroutine begins with. It may
// return before that, as for a client that has sent all that is kept.
func (c *Client) pause() {
	c.armOwn()
	if !c.ended && len(c.sent) < c.max {
		_ = c.reader.Wait()
	}
}

// wait waits until the client is released to a backend or refused, or has sent something,
// which is kept; false: it went away.
func (c *Client) wait() (event, bool) {
	if e, called := c.event(); called {
		return e, true
	}
	c.full = false
	aborts := c.port.Policy().Aborts
	c.armOwn()
	for {
		room := c.max - len(c.sent)
		if c.ended || c.full || room <= 0 {
			// The rest stays in the kernel, which slows the client down.
			if c.reader.WaitGone(aborts) == nil {
				return event{}, false
			}
			if e, ended := c.interrupted(); ended {
				return e, true
			}
			continue
		}
		err := c.reader.Wait()
		var chunk []byte
		if err == nil {
			chunk, err = c.reader.Next(room)
		}
		switch {
		case err == nil:
			c.take(chunk)
			if c.questions != nil {
				c.questions.heard(c)
			}
			return event{read: true}, true
		case errors.Is(err, os.ErrDeadlineExceeded):
			if e, ended := c.interrupted(); ended {
				return e, true
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

// event takes the event that is there, or about to come; false: none is.
func (c *Client) event() (event, bool) {
	c.deadline.Lock()
	called := c.called
	c.deadline.Unlock()
	if !called {
		return event{}, false
	}
	return c.await(), true
}

// interrupted takes the event that ended a read, and reports whether it ends the wait.
func (c *Client) interrupted() (event, bool) {
	if e, called := c.event(); called {
		return e, true
	}
	if c.questions == nil {
		return event{reason: c.port.afterBriefWait(), own: true}, true
	}
	if c.questions.ask(c.conn) {
		c.arm(c.questions.due)
		return event{}, false
	}
	return event{reason: proto.TimedOut, own: true}, true
}
