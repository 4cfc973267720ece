package tcp

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// questions keep a held client waiting that would otherwise give up.
type questions struct {
	protocol proto.Waiter
	// from is where the client's answers begin in what it sent.
	from int
	// asked counts the questions. Open is set while the last has no answer.
	asked int32
	open  bool
	// due is when to ask next or, while a question is open, when its answer is due.
	due time.Time
	// odd is set once the client has sent something other than an answer. It is not asked again
	// then.
	odd bool
}

// newQuestions makes the questions for a client that is about to be held, and can be asked.
func newQuestions(protocol proto.Waiter, head []byte) *questions {
	ask, _ := protocol.Patience()
	return &questions{protocol: protocol, from: len(head), due: time.Now().Add(ask)}
}

// ask asks when it is due; false: the client can't be made to wait for longer.
func (q *questions) ask(c *conn.Stream) bool {
	if q.open || q.odd {
		return false
	}
	_, answer := q.protocol.Patience()
	q.asked++
	q.open, q.due = true, time.Now().Add(answer)
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	// So few bytes find room in the socket, unless the client doesn't read.
	_ = c.SetWriteDeadline(q.due)
	_, err := c.Write(q.protocol.Question((*scratch)[:0], q.asked))
	_ = c.SetWriteDeadline(time.Time{})
	return err == nil
}

// heard takes the client's answer out of what it sent.
func (q *questions) heard(c *Client) {
	if q.odd || len(c.sent) == q.from {
		return
	}
	size, err := 0, error(nil)
	if q.open {
		size, err = q.protocol.Reply(c.sent[q.from:], q.asked)
	}
	if !q.open || err != nil {
		// The backend decides what to make of it.
		q.odd = true
		return
	}
	if size == 0 {
		return
	}
	c.budget.Give(size)
	c.sent = append(c.sent[:q.from], c.sent[q.from+size:]...)
	q.odd = len(c.sent) > q.from
	ask, _ := q.protocol.Patience()
	q.open, q.due = false, time.Now().Add(ask)
}

// awaitReply waits for the answer to an open question: the backend would not know what it is.
func (c *Client) awaitReply() {
	q := c.questions
	if !q.open {
		return
	}
	_ = c.conn.SetReadDeadline(q.due)
	defer func() { _ = c.conn.SetReadDeadline(time.Time{}) }()
	for q.open && !q.odd && len(c.sent) < c.max {
		chunk, err := c.reader.Next(c.max - len(c.sent))
		if err != nil {
			return // whoever uses the connection next finds out why
		}
		c.take(chunk)
		q.heard(c)
	}
}
