package dataplane

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// heldTCP is a TCP client that has no server yet, and what it sent so far.
type heldTCP struct {
	conn   *net.TCPConn
	reader *conn.Reader
	max    int
	// sent is charged to the budget.
	sent   []byte
	budget *conn.Budget
	ended  bool
	// full says that the budget has no room for more.
	full   bool
	events chan event
	visit  guard.Visit
}

// release gives up the first n bytes of what is held.
func (h *heldTCP) release(n int) {
	h.budget.Give(n)
	h.sent = h.sent[n:]
	if len(h.sent) == 0 {
		h.sent = nil
	}
}

// event ends a wait.
type event struct {
	grant  hold.Grant
	reason proto.Reason
}

// Granted implements hold.Client. The deadline comes first: once the event is
// there, the client's goroutine sets the deadlines again.
func (h *heldTCP) Granted(g hold.Grant) {
	_ = h.conn.SetReadDeadline(past)
	h.events <- event{grant: g}
}

// Refused implements hold.Client.
func (h *heldTCP) Refused(reason proto.Reason) {
	_ = h.conn.SetReadDeadline(past)
	h.events <- event{reason: reason}
}

// wait keeps what the client sends until it is granted a server or refused;
// false: the client went away.
func (h *heldTCP) wait() (event, bool) {
	h.full = false
	for {
		room := h.max - len(h.sent)
		if h.ended || h.full || room <= 0 {
			// The rest stays in the kernel, which slows the client down.
			if h.reader.WaitGone() == nil {
				return event{}, false
			}
			e := <-h.events
			_ = h.conn.SetReadDeadline(time.Time{})
			return e, true
		}
		chunk, err := h.reader.Next(room)
		switch {
		case err == nil:
			h.sent = append(h.sent, chunk...)
			h.reader.Done()
		case errors.Is(err, os.ErrDeadlineExceeded):
			e := <-h.events
			_ = h.conn.SetReadDeadline(time.Time{})
			return e, true
		case errors.Is(err, conn.ErrNoRoom):
			h.full = true
		case errors.Is(err, io.EOF) && len(h.sent) > 0:
			// It said all it has to say and may still listen. Relaying reads
			// this end again and passes it on. If it does not listen any more,
			// only keep-alive tells, once its host has forgotten the connection.
			h.ended = true
			_ = h.conn.SetKeepAliveConfig(endedKeepAlive)
		default:
			return event{}, false
		}
	}
}

// replay sends a server what was held. What was held is kept until then, for
// another server if this one fails.
func replay(h *heldTCP, server *net.TCPConn) error {
	if len(h.sent) == 0 {
		return nil
	}
	_ = server.SetWriteDeadline(time.Now().Add(replayTimeout))
	if _, err := server.Write(h.sent); err != nil {
		return err
	}
	return server.SetWriteDeadline(time.Time{})
}
