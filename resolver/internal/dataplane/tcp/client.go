package tcp

import (
	"bytes"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// Client is a TCP client, and what it sent while it has no backend. One goroutine uses it, and
// once it is relayed the relay's loop.
type Client struct {
	shared *service.Shared
	// conn is nil once the client is relayed.
	conn   *conn.Stream
	reader *conn.Reader
	line   *accesslog.Line
	endpoints
	// announced is set where the backend is first sent the client's address.
	announced bool
	// sent is charged to the budget. At most max bytes are kept of a held client. Ended is set
	// once the client has ended its side, and full while the budget has no room for more.
	sent        []byte
	budget      *conn.Budget
	max         int
	ended, full bool

	// port is the port that the client was admitted to, by stay. Open is set while it counts
	// among the clients that keep the service awake.
	port *Port
	stay guard.Stay
	open bool
	// front is the client's state at the front that it came to; nil: it came to the port.
	front *atFront
	// slot is the client's place on the backend that it has or tries.
	slot *hold.Slot

	// headDue is when the client must have said what it wants, and received its answer; zero
	// before it is first classified. Answered is set once it has had the one Answer that is
	// marked Once.
	headDue  time.Time
	answered bool
	// ticket is its place in the queue, while it is held.
	ticket *hold.Ticket
	// questions make the client wait for longer; nil: it can't be asked any.
	questions *questions
	// brief is set where the client waits no longer than the wake takes to be asked for, which
	// leaveAt bounds; zero: its wait is the queue's.
	brief   bool
	leaveAt time.Time
	// ifDown is set where the client's first request is a query and no backend could be reached for it, though
	// one counts as up. It is answered, and its connection closed: the next request may find a backend.
	ifDown bool
}

// begin begins the client's stay at a port. What was read until then is charged to its source
// there from now on. False: it was read at a front, and the service's share has no room for it.
func (c *Client) begin(p *Port, stay guard.Stay) bool {
	c.port, c.stay = p, stay
	was, kept := c.budget, stay.Budget(p.Held)
	if kept == was {
		return true
	}
	was.Give(len(c.sent))
	if was != p.Held && p.Held.Full() {
		was.Force(len(c.sent))
		return false
	}
	kept.Force(len(c.sent))
	c.budget = kept
	c.reader.Charge(kept)
	return true
}

// end ends the client, and gives back what it took. An HTTP client whose next request is for
// another service goes on there.
func (c *Client) end() {
	if c.open {
		c.port.Active.Heard.Note(time.Now())
		c.port.Active.Open.Add(-1)
	}
	c.slot.Leave()
	c.drop(len(c.sent))
	if c.port != nil {
		c.stay.Leave()
		c.port.GiveConnection()
	}
	turns := c.front != nil && c.front.turned != nil
	if c.front != nil && !turns {
		c.front.stay.Leave()
	}
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.line.Write()
	if turns {
		c.front.goOn(c)
	}
}

// keepAwake counts the client among those that keep the service awake.
func (c *Client) keepAwake() {
	c.open = true
	c.port.Active.Open.Add(1)
}

// pass finds out how much of what is held is for this service's backend: at a front of HTTP a
// later request may be for another service.
func (c *Client) pass() (passes int, x *http1.Exchange) {
	if c.front == nil || c.front.only == nil {
		return len(c.sent), nil
	}
	x = http1.NewExchange()
	x.Only(c.front.only)
	passes = x.Read(http1.Client, c.sent)
	x.Passed(http1.Client)
	return passes, x
}

// drop discards the first n bytes of what is held.
func (c *Client) drop(n int) {
	if n == 0 {
		return
	}
	c.budget.Give(n)
	c.sent = c.sent[n:]
	if len(c.sent) == 0 {
		c.sent = nil
	}
}

// take adds what was read, and charged, to what is held.
func (c *Client) take(chunk []byte) {
	c.sent = append(c.sent, chunk...)
	c.reader.Done()
}

// takeSlot replaces the client's slot by that of a release.
func (c *Client) takeSlot(g hold.Release) {
	c.slot.Leave()
	c.slot = g.Slot
}

// atFront is a client's state at the front that it came to.
type atFront struct {
	stay guard.Stay
	// returned is set where it has come back from another service of the front.
	returned bool
	// only reports, for an HTTP client, which hosts' requests are for its current service; nil:
	// all are.
	only func(host string) bool
	// turn serves it on with another service.
	turn func(was *Client, client *conn.Stream, rest []byte)
	// turned is its connection where its next request, of which rest was read, is for another
	// service; nil: it isn't.
	turned *conn.Stream
	rest   []byte
}

// goOn serves the client on, in a goroutine of its own.
func (a *atFront) goOn(was *Client) {
	was.shared.Running.Go(func() {
		defer utilruntime.HandleCrash()
		a.turn(was, a.turned, a.rest)
	})
}

// goBack returns an HTTP client to the front after it was answered in the backend's place: its
// next request may be for another host.
func (c *Client) goBack() { c.moveOn(c.conn.Detach(), bytes.Clone(c.sent)) }

// turn is goBack for a client whose relay ended because its next request is for another host.
func (c *Client) turn(e relay.Ended) { c.moveOn(e.Client, e.Rest) }

func (c *Client) moveOn(fd int, rest []byte) {
	if client, err := conn.NewStream(loop.Next(), fd); err == nil {
		c.front.turned = client
		c.front.rest = bytes.TrimLeft(rest, "\r\n") // which may stand before a request
	}
}
