package dataplane

import (
	"net"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// questions keep a held client waiting that would give up by itself.
type questions struct {
	protocol proto.Waiter
	// from is where in what the client sent its answers begin.
	from int
	// asked counts the questions. Open says that the last has no answer yet.
	asked int32
	open  bool
	// due is when to ask next, or, while a question is open, when it is too late
	// for an answer.
	due time.Time
	// odd says that the client sent something else than an answer: it isn't asked
	// again.
	odd bool
}

// newQuestions are for a client that was held just now; nil: it can't be asked.
func newQuestions(p proto.Protocol, head []byte) *questions {
	protocol, ok := p.(proto.Waiter)
	if !ok || !protocol.WouldWait(head) {
		return nil
	}
	ask, _ := protocol.Patience()
	return &questions{protocol: protocol, from: len(head), due: time.Now().Add(ask)}
}

// ask is called when it is due; false: the client has waited for as long as it can
// be made to.
func (q *questions) ask(c net.Conn) bool {
	if q.open || q.odd {
		return false
	}
	_, answer := q.protocol.Patience()
	q.asked++
	q.open, q.due = true, time.Now().Add(answer)
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	// There is room in the socket for as little, or the client doesn't read.
	_ = c.SetWriteDeadline(q.due)
	_, err := c.Write(q.protocol.Question((*scratch)[:0], q.asked))
	_ = c.SetWriteDeadline(time.Time{})
	return err == nil
}

// heard takes the client's answer out of what it sent.
func (q *questions) heard(h *heldTCP) {
	if q.odd || len(h.sent) == q.from {
		return
	}
	size, err := 0, error(nil)
	if q.open {
		size, err = q.protocol.Reply(h.sent[q.from:], q.asked)
	}
	if !q.open || err != nil {
		// It is the server's to judge.
		q.odd = true
		return
	}
	if size == 0 {
		return
	}
	h.budget.Give(size)
	h.sent = append(h.sent[:q.from], h.sent[q.from+size:]...)
	q.odd = len(h.sent) > q.from
	ask, _ := q.protocol.Patience()
	q.open, q.due = false, time.Now().Add(ask)
}

// settle waits for the answer to a question that is open: the server would not know
// what it is.
func (h *heldTCP) settle() {
	q := h.questions
	if q == nil || !q.open {
		return
	}
	h.arm(q.due)
	defer h.arm(time.Time{})
	for q.open && !q.odd && len(h.sent) < h.max {
		chunk, err := h.reader.Next(h.max - len(h.sent))
		if err != nil {
			return // Whoever uses the connection next finds out why.
		}
		h.sent = append(h.sent, chunk...)
		h.reader.Done()
		q.heard(h)
	}
}
