package dataplane

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// farewellTimeout bounds telling a client why it is refused.
	farewellTimeout = 500 * time.Millisecond
	// maxUnread bounds what is read and thrown away of one meanwhile.
	maxUnread = 1 << 20
)

// inspect lets the protocol judge what the client says first; false: that was
// all. The handshake's time is for that, and for taking in what it is answered.
func (p *servedPort) inspect(h *heldTCP) bool { return p.inspectFrom(h, false) }

// inspectFrom is inspect for a client that may have been answered already.
func (p *servedPort) inspectFrom(h *heldTCP, answered bool) bool {
	h.awaitHead(p.headTime())
	for {
		action, more, err := p.judge(h)
		switch {
		case err != nil:
			return false
		case action == proto.Hold:
			h.headHeard()
			return true
		case action == proto.Refuse || action == proto.Finish:
			return false
		case action == proto.Answer:
			answered = true
			if h.only != nil {
				h.handBack()
				return false
			}
			if !h.answered {
				_ = h.conn.SetDeadline(time.Now().Add(p.headTime()))
			}
		}
		if more {
			continue
		}
		if !p.hear(h, answered) {
			return false
		}
	}
}

// awaitHead bounds the time in which the client says what it wants, and takes in what
// it is answered, unless it is bounded already.
func (h *heldTCP) awaitHead(atMost time.Duration) {
	if h.headDue.IsZero() {
		h.headDue = time.Now().Add(atMost)
	}
	_ = h.conn.SetDeadline(h.headDue)
}

// headHeard ends what awaitHead began.
func (h *heldTCP) headHeard() {
	h.headDue = time.Time{}
	_ = h.conn.SetDeadline(time.Time{})
}

// hear waits for more of what a client says first; false: it went away, or is
// refused.
func (p *servedPort) hear(h *heldTCP, answered bool) bool {
	if len(h.sent) >= proto.MaxHead {
		p.refuse(h.line, proto.Unfinished)
		return false
	}
	chunk, err := h.reader.Next(proto.MaxHead - len(h.sent))
	if err != nil {
		switch {
		case errors.Is(err, conn.ErrNoRoom):
			p.refuse(h.line, proto.TooManyBytes)
			p.farewell(h, proto.TooManyBytes)
		case errors.Is(err, os.ErrDeadlineExceeded) && (!answered || len(h.sent) > 0):
			p.refuse(h.line, proto.Unfinished)
			p.farewell(h, proto.Unfinished)
		case errors.Is(err, net.ErrClosed):
			h.line.Refused(string(proto.Evicted)) // as is counted of who has its place now
		}
		return false
	}
	h.sent = append(h.sent, chunk...)
	h.reader.Done()
	return true
}

// goesOn waits whether a client says more within a time, in which case what it said so
// far means something else; false: it doesn't, or not until all of it is due.
func (h *heldTCP) goesOn(while time.Duration, due time.Time) bool {
	if until := time.Now().Add(while); until.Before(due) {
		_ = h.conn.SetReadDeadline(until)
	}
	defer func() { _ = h.conn.SetReadDeadline(due) }()
	chunk, err := h.reader.Next(proto.MaxHead - len(h.sent))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// On a host that is short of time it may have come all the same.
		chunk, err = h.reader.NextNow(proto.MaxHead - len(h.sent))
	}
	if err != nil {
		return false
	}
	h.sent = append(h.sent, chunk...)
	h.reader.Done()
	return true
}

// judge asks the protocol once and says what it is told to. More says that there
// are bytes to be judged still.
func (p *servedPort) judge(h *heldTCP) (action proto.Action, more bool, err error) {
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	verdict := p.protocol.Inspect(h.sent, p.known.Load().client(netip.AddrPort{}, (*scratch)[:0]))
	if verdict.After > 0 && h.goesOn(verdict.After, h.headDue) {
		return proto.NeedMore, true, nil
	}
	if verdict.Action == proto.Answer && verdict.Once && h.answered {
		verdict = proto.Verdict{Action: proto.Refuse}
	}
	switch verdict.Action {
	case proto.Answer:
		h.answered = h.answered || verdict.Once
		if _, err := h.conn.Write(verdict.Answer); err != nil {
			return verdict.Action, false, err
		}
		p.counts.QueryAnswered()
		h.line.Answered()
		h.release(min(max(verdict.Used, 0), len(h.sent)))
		more = len(h.sent) > 0 && verdict.Used > 0
	case proto.Finish:
		p.counts.QueryAnswered()
		h.line.Answered()
		part(h.conn, verdict.Answer)
	case proto.Refuse:
		p.refuse(h.line, cmp.Or(verdict.Reason, proto.Unwanted))
		if len(verdict.Answer) > 0 {
			part(h.conn, verdict.Answer)
		}
	case proto.Hold, proto.NeedMore:
	}
	return verdict.Action, more, nil
}

// refusal is what the protocol has to say to a client that is sent away.
func (p *servedPort) refusal(h *heldTCP, why proto.Reason) []byte {
	return p.protocol.Refusal(why, h.sent, p.known.Load().client(netip.AddrPort{}, nil))
}

// farewell tells a client why it is refused, which takes a place among those that have
// no other.
func (p *servedPort) farewell(h *heldTCP, why proto.Reason) {
	if text := p.refusal(h, why); len(text) > 0 {
		defer p.occupy(h).End()
		part(h.conn, text)
	}
}

// farewellInPlace is farewell for a client that has such a place.
func (p *servedPort) farewellInPlace(h *heldTCP, why proto.Reason) {
	if text := p.refusal(h, why); len(text) > 0 {
		part(h.conn, text)
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
