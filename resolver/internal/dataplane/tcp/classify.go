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
	// refusalTimeout bounds telling a client why it is refused.
	refusalTimeout = 500 * time.Millisecond
	// maxUnread bounds how much is read and discarded of such a client meanwhile.
	maxUnread = 1 << 20
)

// classifier reads what the clients of a port, or of a front, send first, and has a protocol
// classify it.
type classifier struct {
	protocol proto.Protocol
	counts   *metrics.Port
	guard    *guard.Guard
	terms    terms
}

// terms are a classifier's settings.
type terms interface {
	// Policy is what clients are classified by.
	Policy() *service.Policy
	// HeadTime bounds how long a client may take to say what it wants, and to receive its
	// answer.
	HeadTime() time.Duration
	// MaxHandshakes bounds how many clients may do so at once.
	MaxHandshakes() int
}

// refuse counts a client that is refused.
func (f *classifier) refuse(l *accesslog.Line, reason proto.Reason) {
	f.counts.Refused(string(reason))
	l.Refused(string(reason))
}

// occupy takes a client's place among those that are not admitted yet. Where there is none left
// the oldest of them is cut.
func (f *classifier) occupy(c *Client) guard.Handshake {
	place, evicted := f.guard.Handshake(c.conn, f.terms.MaxHandshakes())
	if evicted {
		f.counts.Refused(string(proto.Evicted))
	}
	return place
}

// classify has the protocol classify a client; false: the client is done. The handshake's time
// bounds that, and receiving the answer.
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
			if c.ifDown {
				part(c.conn, nil)
				return false
			}
			if c.front != nil && c.front.only != nil {
				// The client's next request may be for another host.
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

// awaitHead bounds the time in which the client says what it wants, and receives its answer,
// unless it is bounded already.
func (c *Client) awaitHead(atMost time.Duration) {
	if c.headDue.IsZero() {
		c.headDue = time.Now().Add(atMost)
	}
	_ = c.conn.SetDeadline(c.headDue)
}

// headHeard ends the bound that awaitHead set.
func (c *Client) headHeard() {
	c.headDue = time.Time{}
	_ = c.conn.SetDeadline(time.Time{})
}

// hear waits for more of a client's first bytes; false: it went away, or is refused.
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
			f.refuseWith(c, proto.TooManyBytes)
		case errors.Is(err, os.ErrDeadlineExceeded) && (!answered || len(c.sent) > 0):
			f.refuse(c.line, proto.Unfinished)
			f.refuseWith(c, proto.Unfinished)
		case errors.Is(err, net.ErrClosed):
			c.line.Refused(string(proto.Evicted)) // its successor has counted it so
		}
		return false
	}
	c.take(chunk)
	return true
}

// goesOn reports whether a client sends more within a time, which changes the meaning of what
// it sent so far; false: it doesn't, or due comes first.
func (c *Client) goesOn(while time.Duration, due time.Time) bool {
	if until := time.Now().Add(while); until.Before(due) {
		_ = c.conn.SetReadDeadline(until)
	}
	defer func() { _ = c.conn.SetReadDeadline(due) }()
	chunk, err := c.reader.Next(proto.MaxHead - len(c.sent))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// On a busy host bytes may have come all the same.
		chunk, err = c.reader.NextNow(proto.MaxHead - len(c.sent))
	}
	if err != nil {
		return false
	}
	c.take(chunk)
	return true
}

// classifyOnce asks the protocol once and sends its answer. More means that there are bytes
// still to be classified.
func (f *classifier) classifyOnce(c *Client) (action proto.Action, more bool, err error) {
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	client := f.terms.Policy().Client
	if c.ifDown {
		client = f.terms.Policy().ClientIfDown
	}
	verdict := f.protocol.Inspect(c.sent, client(netip.AddrPort{}, (*scratch)[:0]))
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
	case proto.Hold:
		c.brief = verdict.Brief
	case proto.NeedMore:
	}
	return verdict.Action, more, nil
}

// refusal is what the protocol sends to a client that is refused.
func (f *classifier) refusal(c *Client, why proto.Reason) []byte {
	return f.protocol.Refusal(why, c.sent, f.terms.Policy().Client(netip.AddrPort{}, nil))
}

// refuseWith tells a client why it is refused. That takes a place among the clients that are
// not admitted.
func (f *classifier) refuseWith(c *Client, why proto.Reason) {
	text := f.refusal(c, why)
	c.drop(len(c.sent)) // it takes its time to read the text
	if len(text) > 0 {
		defer f.occupy(c).End()
		part(c.conn, text)
	}
}

// refuseInPlace is refuseWith for a client that has such a place.
func (f *classifier) refuseInPlace(c *Client, why proto.Reason) {
	if text := f.refusal(c, why); len(text) > 0 {
		part(c.conn, text)
	}
}

// part ends a connection so that the client sees its end, and can read the text: closing one
// with unread bytes resets it and discards the text.
func part(c *conn.Stream, text []byte) {
	_ = c.SetDeadline(time.Now().Add(refusalTimeout))
	if len(text) > 0 {
		if _, err := c.Write(text); err != nil {
			return
		}
	}
	_ = c.CloseWrite()
	c.Discard(maxUnread)
}
