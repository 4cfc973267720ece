package tcp

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// farewellTimeout bounds telling a client why it is refused.
	farewellTimeout = 500 * time.Millisecond
	// maxUnread bounds what is read and thrown away of one meanwhile.
	maxUnread = 1 << 20
)

// classifier hears what the clients of a port, or of a front, say first, and has a protocol
// say what they want.
type classifier struct {
	protocol proto.Protocol
	counts   *metrics.Port
	guard    *guard.Guard
	terms    terms
}

// terms are what a classifier goes by.
type terms interface {
	// Policy is what clients are classified by.
	Policy() *service.Policy
	// HeadTime bounds how long a client may take to say what it wants, and to take in
	// what it is answered.
	HeadTime() time.Duration
	// MaxHandshakes bounds how many do at once.
	MaxHandshakes() int
}

// refuse counts a client that is refused.
func (f *classifier) refuse(l *accesslog.Line, reason proto.Reason) {
	f.counts.Refused(string(reason))
	l.Refused(string(reason))
}

// occupy takes a client's place among those that have no other. Where there is none
// the oldest of them is cut.
func (f *classifier) occupy(c *Client) guard.Handshake {
	place, evicted := f.guard.Handshake(c.conn, f.terms.MaxHandshakes())
	if evicted {
		f.counts.Refused(string(proto.Evicted))
	}
	return place
}

// classify has the protocol say what a client wants; false: that was
// all. The handshake's time is for that, and for taking in what it is answered.
func (f *classifier) classify(c *Client) bool { return f.classifyFrom(c, false) }

// classifyFrom is classify for a client that may have been answered already.
func (f *classifier) classifyFrom(c *Client, answered bool) bool {
	c.awaitHead(f.terms.HeadTime())
	for {
		action, more, err := f.classifyOnce(c)
		switch {
		case err != nil:
			return false
		case action == proto.Hold:
			c.headHeard()
			return true
		case action == proto.Refuse || action == proto.Finish:
			return false
		case action == proto.Answer:
			answered = true
			if c.front != nil && c.front.only != nil {
				// What it asks next may be for another host.
				c.goBack()
				return false
			}
			if !c.answered {
				_ = c.conn.SetDeadline(time.Now().Add(f.terms.HeadTime()))
			}
		}
		if more {
			continue
		}
		if !f.hear(c, answered) {
			return false
		}
	}
}

// awaitHead bounds the time in which the client says what it wants, and takes in what
// it is answered, unless it is bounded already.
func (c *Client) awaitHead(atMost time.Duration) {
	if c.headDue.IsZero() {
		c.headDue = time.Now().Add(atMost)
	}
	_ = c.conn.SetDeadline(c.headDue)
}

// headHeard ends what awaitHead began.
func (c *Client) headHeard() {
	c.headDue = time.Time{}
	_ = c.conn.SetDeadline(time.Time{})
}

// hear waits for more of what a client says first; false: it went away, or is
// refused.
func (f *classifier) hear(c *Client, answered bool) bool {
	if len(c.sent) >= proto.MaxHead {
		f.refuse(c.line, proto.Unfinished)
		return false
	}
	chunk, err := c.reader.Next(proto.MaxHead - len(c.sent))
	if err != nil {
		switch {
		case errors.Is(err, conn.ErrNoRoom):
			f.refuse(c.line, proto.TooManyBytes)
			f.farewell(c, proto.TooManyBytes)
		case errors.Is(err, os.ErrDeadlineExceeded) && (!answered || len(c.sent) > 0):
			f.refuse(c.line, proto.Unfinished)
			f.farewell(c, proto.Unfinished)
		case errors.Is(err, net.ErrClosed):
			c.line.Refused(string(proto.Evicted)) // as is counted of who has its place now
		}
		return false
	}
	c.take(chunk)
	return true
}

// goesOn waits whether a client says more within a time, in which case what it said so
// far means something else; false: it doesn't, or not until all of it is due.
func (c *Client) goesOn(while time.Duration, due time.Time) bool {
	if until := time.Now().Add(while); until.Before(due) {
		_ = c.conn.SetReadDeadline(until)
	}
	defer func() { _ = c.conn.SetReadDeadline(due) }()
	chunk, err := c.reader.Next(proto.MaxHead - len(c.sent))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// On a host that is short of time it may have come all the same.
		chunk, err = c.reader.NextNow(proto.MaxHead - len(c.sent))
	}
	if err != nil {
		return false
	}
	c.take(chunk)
	return true
}

// classifyOnce asks the protocol once and says what it is told to. More says that there
// are bytes to be judged still.
func (f *classifier) classifyOnce(c *Client) (action proto.Action, more bool, err error) {
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	verdict := f.protocol.Inspect(c.sent, f.terms.Policy().Client(netip.AddrPort{}, (*scratch)[:0]))
	if verdict.After > 0 && c.goesOn(verdict.After, c.headDue) {
		return proto.NeedMore, true, nil
	}
	if verdict.Action == proto.Answer && verdict.Once && c.answered {
		verdict = proto.Verdict{Action: proto.Refuse}
	}
	switch verdict.Action {
	case proto.Answer:
		c.answered = c.answered || verdict.Once
		if _, err := c.conn.Write(verdict.Answer); err != nil {
			return verdict.Action, false, err
		}
		f.counts.QueryAnswered()
		c.line.Answered()
		c.drop(min(max(verdict.Used, 0), len(c.sent)))
		more = len(c.sent) > 0 && verdict.Used > 0
	case proto.Finish:
		f.counts.QueryAnswered()
		c.line.Answered()
		part(c.conn, verdict.Answer)
	case proto.Refuse:
		f.refuse(c.line, cmp.Or(verdict.Reason, proto.Unwanted))
		if len(verdict.Answer) > 0 {
			part(c.conn, verdict.Answer)
		}
	case proto.Hold, proto.NeedMore:
	}
	return verdict.Action, more, nil
}

// refusal is what the protocol has to say to a client that is sent away.
func (f *classifier) refusal(c *Client, why proto.Reason) []byte {
	return f.protocol.Refusal(why, c.sent, f.terms.Policy().Client(netip.AddrPort{}, nil))
}

// farewell tells a client why it is refused, which takes a place among those that have
// no other.
func (f *classifier) farewell(c *Client, why proto.Reason) {
	if text := f.refusal(c, why); len(text) > 0 {
		defer f.occupy(c).End()
		part(c.conn, text)
	}
}

// farewellInPlace is farewell for a client that has such a place.
func (f *classifier) farewellInPlace(c *Client, why proto.Reason) {
	if text := f.refusal(c, why); len(text) > 0 {
		part(c.conn, text)
	}
}

// part ends a connection so that the client sees its end, and can read what it
// is told: closing one with unread bytes resets it and throws the text away.
func part(c *conn.Stream, text []byte) {
	_ = c.SetDeadline(time.Now().Add(farewellTimeout))
	if len(text) > 0 {
		if _, err := c.Write(text); err != nil {
			return
		}
	}
	_ = c.CloseWrite()
	c.Discard(maxUnread)
}
