package dataplane

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// heldTCP is a TCP client that has no server yet, and what it sent so far.
type heldTCP struct {
	conn   *net.TCPConn
	reader *conn.Reader
	// port is whose client it is once it has entered, and open says that it counts
	// among those who keep the service awake.
	port *servedPort
	open bool
	max  int
	// sent is charged to the budget.
	sent   []byte
	budget *conn.Budget
	ended  bool
	endpoints
	// announced says that a server is told first where the client is.
	announced bool
	line      *accesslog.Line
	// seat is the client's place on the server that it has or tries.
	seat *hold.Seat
	// full says that the budget has no room for more.
	full   bool
	events chan event
	visit  guard.Visit
	// atFront is the client's stay at the front that it came to, if it did. Only says of a
	// client of HTTP there which hosts' requests are this service's; nil: all are. Turns
	// is how it goes on with another's.
	atFront guard.Visit
	only    func(host string) bool
	// exchange has read what is held of such a client, of which passes bytes are for this
	// service's server.
	exchange *http1.Exchange
	passes   int
	turns    func(client *net.TCPConn, rest []byte)
	// turned says that it came so from another service, and next is where it goes so.
	turned bool
	next   func()
	// headDue is when the client must have said what it wants, and taken in what it is
	// answered; zero before it is first asked. Answered says that it has had the
	// one Answer that is marked Once.
	headDue  time.Time
	answered bool
	// questions are for a client that can be made to wait; nil: it can't.
	questions *questions
	// called says that an event is there or comes at once; deadline guards it, and
	// the read deadline against being put off then.
	called   bool
	deadline sync.Mutex
}

// end ends the client's stay.
func (h *heldTCP) end() {
	if h.open {
		active := &h.port.service.active
		active.touch(time.Now())
		active.open.Add(-1)
	}
	h.sit(hold.Grant{})
	if h.port != nil {
		h.port.leave(h)
	}
	h.release(len(h.sent))
	if h.next == nil {
		h.atFront.Leave()
	}
	_ = h.conn.Close()
	h.line.Write()
	if h.next != nil {
		h.next()
	}
}

// handBack has a client of HTTP that was answered in the server's place go back to the
// front: what it asks next may be for another host.
func (h *heldTCP) handBack() {
	if fd, err := conn.Take(h.conn); err == nil {
		h.turn(forward.Ended{Client: fd, Rest: bytes.Clone(h.sent)})
	}
}

// turn has a client whose relay ended so go on with another service, once this one's stay
// has ended.
func (h *heldTCP) turn(e forward.Ended) {
	client, err := conn.Give(e.Client)
	if err != nil {
		return
	}
	rest := bytes.TrimLeft(e.Rest, "\r\n") // which may stand before a request
	server := h.port.service.server
	h.next = func() {
		server.wg.Go(func() {
			defer utilruntime.HandleCrash()
			h.turns(client, rest)
		})
	}
}

// split finds out how much of what is held is for this service's server.
func (h *heldTCP) split() {
	if h.passes = len(h.sent); h.only != nil {
		h.exchange = http1.NewExchange()
		h.exchange.Only(h.only)
		h.passes = h.exchange.Read(http1.Client, h.sent)
		h.exchange.Passed(http1.Client)
	}
}

// served notes that the client has a server, which has been sent what was held.
func (h *heldTCP) served(server *net.TCPConn) {
	if h.line != nil {
		h.line.Served(endpointOf(server.RemoteAddr()))
		h.line.Carried(int64(h.passes), 0)
	}
}

// release gives up the first n bytes of what is held.
func (h *heldTCP) release(n int) {
	h.budget.Give(n)
	h.sent = h.sent[n:]
	if len(h.sent) == 0 {
		h.sent = nil
	}
}

// sit leaves the seat that the client has for that of a grant.
func (h *heldTCP) sit(g hold.Grant) {
	h.seat.Leave()
	h.seat = g.Seat
}

// event ends a wait.
type event struct {
	grant  hold.Grant
	reason proto.Reason
	// own says that the queue doesn't know of it yet.
	own bool
	// read says that it is none, but that the client said something.
	read bool
}

// Granted implements hold.Client.
func (h *heldTCP) Granted(g hold.Grant) { h.call(event{grant: g}) }

// Refused implements hold.Client.
func (h *heldTCP) Refused(reason proto.Reason) { h.call(event{reason: reason}) }

// call ends the client's wait. The deadline comes first: once the event is there,
// the client's goroutine sets the deadlines again.
func (h *heldTCP) call(e event) {
	h.deadline.Lock()
	h.called = true
	_ = h.conn.SetReadDeadline(past)
	h.deadline.Unlock()
	h.events <- e
}

// arm sets when the next read ends by itself, unless it ends at once.
func (h *heldTCP) arm(at time.Time) {
	h.deadline.Lock()
	defer h.deadline.Unlock()
	if !h.called {
		_ = h.conn.SetReadDeadline(at)
	}
}

// event takes the one that there is, or comes at once.
func (h *heldTCP) event() (e event, called bool) {
	h.deadline.Lock()
	called = h.called
	h.deadline.Unlock()
	if called {
		e = h.await()
	}
	return e, called
}

// await takes the event that was promised.
func (h *heldTCP) await() event {
	e := <-h.events
	h.deadline.Lock()
	defer h.deadline.Unlock()
	h.called = false
	_ = h.conn.SetReadDeadline(time.Time{})
	return e
}

// wait waits until the client is granted a server or refused, or has sent something,
// which is kept; false: it went away.
func (h *heldTCP) wait() (event, bool) {
	h.full = false
	aborts := h.port.known.Load().aborts
	if h.questions != nil {
		h.arm(h.questions.due)
	}
	for {
		room := h.max - len(h.sent)
		if h.ended || h.full || room <= 0 {
			// The rest stays in the kernel, which slows the client down.
			if h.reader.WaitGone(aborts) == nil {
				return event{}, false
			}
			if e, ended := h.interrupted(); ended {
				return e, true
			}
			continue
		}
		err := h.reader.Wait()
		var chunk []byte
		if err == nil {
			chunk, err = h.reader.Next(room)
		}
		switch {
		case err == nil:
			h.sent = append(h.sent, chunk...)
			h.reader.Done()
			if h.questions != nil {
				h.questions.heard(h)
			}
			return event{read: true}, true
		case errors.Is(err, os.ErrDeadlineExceeded):
			if e, ended := h.interrupted(); ended {
				return e, true
			}
		case errors.Is(err, conn.ErrNoRoom):
			h.full = true
		case errors.Is(err, io.EOF) && len(h.sent) > 0 && !aborts:
			// It said all it has to say and may still listen. Relaying reads
			// this end again and passes it on. If it does not listen any more,
			// only keep-alive tells, once its host has forgotten the connection.
			h.ended = true
			_ = listener.Watch(h.conn, endedKeepAlive)
		default:
			return event{}, false
		}
	}
}

// interrupted says what ended a read, and whether that ends the wait.
func (h *heldTCP) interrupted() (event, bool) {
	if e, called := h.event(); called {
		return e, true
	}
	if h.questions.ask(h.conn) {
		h.arm(h.questions.due)
		return event{}, false
	}
	return event{reason: proto.TimedOut, own: true}, true
}

// replay sends a server what was held. What was held is kept until then, for
// another server if this one fails.
func replay(h *heldTCP, server *net.TCPConn) error {
	first, err := h.announcement()
	h.split()
	sent := h.sent[:h.passes]
	if err != nil || len(first)+len(sent) == 0 {
		return err
	}
	_ = server.SetWriteDeadline(time.Now().Add(replayTimeout))
	all := net.Buffers{first, sent}
	if _, err := all.WriteTo(server); err != nil {
		return err
	}
	return server.SetWriteDeadline(time.Time{})
}
