// Package relay owns relaying: it copies between a client and a backend once they are
// connected, and counts what it copies. Which client gets which backend, and when, is decided
// elsewhere.
//
// A relay looks to either side like the other: what one side sent reaches the other whole and
// in order, however the connection ends afterwards. Where a side has ended its direction that
// is passed on, and it still gets the rest. A connection that failed, or was cut, is reset on
// the other side, because an orderly end would mean that nothing is missing.
//
// An event of a relay goes one way:
//
//	ready   relay.go      which of the two ends, and what is it ready for?
//	pump    direction.go  read, and send what was read; drain sends what had no room
//	settle  relay.go      what has to follow: wait for less or more, set timer.go, or end
//
// Where all that was read was sent nothing has to follow. What an exchange follows, or is marked,
// is shown and withheld between read and send: pumpFollowed.
package relay

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// Counter counts the bytes that were passed on; nil counts nothing.
type Counter func(bytes int)

// Options are how a relay goes. With the zero value it goes on for as long as both sides are
// there. Relays may share theirs where nothing is followed.
type Options struct {
	// ToServer and ToClient count what was written to either side's socket.
	ToServer, ToClient Counter
	// Exchange follows the bytes, so that EndIfIdle knows when the connection is idle; nil:
	// nothing does. It has read what the backend was sent before.
	Exchange *http1.Exchange
	// Withheld is what the exchange has read of the client and must not be passed yet. Start
	// takes it out.
	Withheld []byte
	// Mark marks the server's first response; nil: nothing does.
	Mark *http1.Mark
	// Answered is called once the server's first byte is written to the client's socket, and must
	// not block; nil: nobody wants to know.
	Answered func()
	// Kept is charged with what one side sent and the other has no room for; nil: nothing is.
	Kept *conn.Budget
	// HalfClosed is how long a relay may be silent once one side has ended, and Idle before
	// that; 0: for as long as both sides are there.
	HalfClosed, Idle time.Duration
	// Head is how long the client may take to send the head of a request, which is withheld
	// until it is complete; 0: without a bound.
	Head time.Duration
}

// Why is why a relay ended.
type Why string

// What ended a relay. A side counts if it was the first to end its direction, or if its
// connection failed.
const (
	ByClient Why = "client"
	ByServer Why = "server"
	// ByTimeout: nothing was sent for too long.
	ByTimeout Why = "timeout"
	// ByIdle: EndIfIdle ended it.
	ByIdle Why = "idle"
	// ByMemory: there was no memory for the client's next request.
	ByMemory Why = "memory"
	// ByTurn: the client goes on with a request for another host.
	ByTurn Why = "turn"
	// ByCut: the context ended.
	ByCut Why = "drained"
)

// Ended is how a relay ended. Err is nil where a side ended or reset its connection.
type Ended struct {
	Why Why
	Err error
	// ToServer and ToClient are how many bytes were written to either side's socket.
	ToServer, ToClient int64
	// Client is the client's socket where the relay ended ByTurn. It is open, and done has to
	// close it. Rest is what was read from it and not passed on.
	Client int
	Rest   []byte
}

// errUnasked is why a relay ends whose server isn't heard any further.
var errUnasked = errors.New("the server sent what answers no request, or can't be followed")

// Relay copies between two TCP connections, and closes both in the end. All methods except
// Start and EndIfIdle are for its loop.
type Relay struct {
	options  *Options
	exchange *http1.Exchange
	// mu keeps the loop away until it waits for both.
	mu             sync.Mutex
	client, server end
	up, down       direction
	closed         bool
	// why and err are why it ends, once a side has ended or failed.
	why  Why
	err  error
	done func(Ended)

	// group has the relay, between these.
	group          *Group
	previous, next *Relay
	// timer is nil before it is first needed.
	timer *timer
}

// Start relays between sockets that belong to the relay until both directions have ended, and
// doesn't wait. The loop calls done at the end, which must not block. The end of the group cuts
// both.
func Start(g *Group, l *loop.Loop, client, server int, o *Options, done func(Ended)) *Relay {
	r := &Relay{options: o, exchange: o.Exchange, done: done}
	r.up = direction{relay: r, src: &r.client, dst: &r.server, side: http1.Client, withholding: &passesAll}
	r.down = direction{relay: r, src: &r.server, dst: &r.client, side: http1.Server, withholding: &passesAll}
	if r.exchange != nil {
		r.up.withholding = &withholding{}
		withheld := o.Withheld
		o.Withheld = nil
		r.up.withhold(withheld, false)
	}
	r.up.over = r.up.stop != http1.GoesOn
	r.client.in, r.client.out = &r.up, &r.down
	r.server.in, r.server.out = &r.down, &r.up
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := [2]error{r.client.file.Open(l, client, &r.client), r.server.file.Open(l, server, &r.server)}
	for i, e := range [...]*end{&r.client, &r.server} {
		if failed[i] != nil {
			r.end(e.why(), failed[i])
		}
	}
	if !r.closed {
		g.add(r)
	}
	r.settle()
	if o.Idle > 0 {
		r.arm(o.Idle)
	}
	return r
}

// EndIfIdle ends the relay soon if it has been idle for least. Any goroutine may call it.
func (r *Relay) EndIfIdle(least time.Duration) {
	r.loop().Do(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed || r.up.waiting || r.down.waiting || r.exchange.IdleFor(time.Now()) < least {
			return
		}
		// What has arrived by now is to be relayed first.
		if !conn.Readable(uintptr(r.client.file.FD)) && !conn.Readable(uintptr(r.server.file.FD)) {
			r.end(ByIdle, nil)
		}
	})
}

func (r *Relay) loop() *loop.Loop { return r.client.file.Loop }

// settle does what has to follow an event.
func (r *Relay) settle() {
	if !r.closed && len(r.up.withheld) > 0 {
		r.up.flush()
	}
	for _, e := range [...]*end{&r.client, &r.server} {
		// Nothing more comes than what is there.
		for e.gone && !r.closed && !e.in.over && !e.in.waiting {
			e.in.pump()
		}
	}
	if r.closed {
		return
	}
	if r.up.stop != http1.GoesOn && r.up.over && !r.up.lost && !r.down.over && !r.down.waiting && !r.client.gone && r.exchange.Between() {
		if r.up.stop == http1.Turned {
			r.turn()
		} else {
			r.leave()
		}
		return
	}
	if r.up.over && r.down.over {
		r.finish()
		return
	}
	for _, e := range [...]*end{&r.client, &r.server} {
		if err := e.want(); err != nil {
			r.reset(e.why(), err)
			return
		}
	}
	// One side has ended, and the time of the other is limited.
	if r.options.HalfClosed > 0 && r.up.over != r.down.over && (r.timer == nil || !r.timer.half) {
		r.timerOf().half = true
		r.arm(r.limit())
	}
	if r.options.Head > 0 && r.up.dawdles() {
		r.wake(r.options.Head - time.Since(r.up.since))
	}
}

// finish closes both once both directions are over. A relay that lost bytes in one direction is
// reset, after either side that is there has received all that the other sent.
func (r *Relay) finish() {
	if !r.up.lost && !r.down.lost {
		r.end(r.why, r.err)
		return
	}
	for _, e := range [...]*end{&r.client, &r.server} {
		if r.awaitsHearing(e) {
			return
		}
	}
	r.reset(r.why, r.err)
}

// leave ends a relay whose client isn't followed any further, once all of its requests are
// answered. What it has sent since is unread, so the end is a reset.
func (r *Relay) leave() {
	if !r.awaitsHearing(&r.client) {
		r.end(cmp.Or(r.up.cut, ByClient), nil)
	}
}

// distrust ends both directions where the client could take what the server says for the answer
// of another host. The server counts as gone, so that nothing waits for it; the client is reset
// once it has received what may be passed.
func (r *Relay) distrust() {
	r.server.fail("", 0)
	r.down.lose()
	r.err = errUnasked
}

// cut ends both at once.
func (r *Relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reset(ByCut, nil)
}

// reset ends both in a way that shows either side that bytes may be missing.
func (r *Relay) reset(why Why, err error) {
	if r.closed {
		return
	}
	for _, e := range [...]*end{&r.client, &r.server} {
		_ = unix.SetsockoptLinger(e.file.FD, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	r.end(why, err)
}

// turn ends the relay and leaves the client's socket open: all of its requests to this backend
// are answered.
func (r *Relay) turn() {
	rest := r.up.withheld
	r.close()
	r.client.file.Leave()
	r.server.file.Close()
	r.done(Ended{Why: ByTurn, ToServer: r.up.all, ToClient: r.down.all, Client: r.client.file.FD, Rest: rest})
}

// by notes that a side has ended, or failed.
func (r *Relay) by(e *end) {
	if r.why == "" {
		r.why = e.why()
	}
}

// end ends both.
func (r *Relay) end(why Why, err error) {
	if r.closed {
		return
	}
	r.close()
	r.client.file.Close()
	r.server.file.Close()
	if err != nil {
		err = fmt.Errorf("relaying: %w", err)
	}
	r.done(Ended{Why: why, Err: err, ToServer: r.up.all, ToClient: r.down.all})
}

// close gives back all but the connections.
func (r *Relay) close() {
	r.closed = true
	if r.timer != nil {
		r.timer.stop()
	}
	r.up.release()
	if len(r.up.withheld) > 0 {
		r.up.withhold(nil, false)
	}
	r.down.release()
	r.leaveGroup()
}

// end is one of the connections: the direction that comes in from it, and the one that
// goes out to it.
type end struct {
	file    loop.File
	in, out *direction
	// hung is set once both sides have ended, though not all of it is read. The kernel reports
	// that again and again.
	hung bool
	// gone is set once the connection has failed. It takes nothing more, and sends nothing more
	// than what has arrived.
	gone bool
}

// Ready implements loop.Handler.
func (e *end) Ready(_ *loop.Loop, events uint32) {
	r := e.in.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	// A connection hangs up without an error when both sides have ended it.
	e.hung = e.hung || events&unix.EPOLLHUP != 0
	if events&unix.EPOLLERR != 0 {
		e.fail("getsockopt", conn.TakeError(e.file.FD))
	}
	if e.out.waiting && events&(loop.Out|loop.Broken) != 0 {
		e.out.drain()
	}
	if !r.closed && !e.in.waiting && !e.in.over && events&(loop.In|loop.Broken) != 0 {
		if all := e.in.pump(); all && events == loop.In {
			return // bytes have moved, and nothing else
		}
	}
	r.settle()
}

// fail takes in that the connection has failed.
func (e *end) fail(call string, errno unix.Errno) {
	if e.gone {
		return
	}
	e.gone = true
	_ = e.file.Want(0)
	e.out.lose()
	r := e.in.relay
	r.by(e)
	if errno != 0 && !errors.Is(errno, syscall.ECONNRESET) && !errors.Is(errno, syscall.EPIPE) {
		r.err = os.NewSyscallError(call, errno)
	}
}

// want has the loop wait for what is missing. A failed connection is reported even while
// nothing is missing, except for one whose bytes wait for the other: its failure is found once
// they are gone, and until then each segment that arrives would cost a look.
func (e *end) want() error {
	if e.gone {
		return nil
	}
	events := uint32(loop.Broken)
	switch {
	case e.in.over:
	case e.in.waiting:
		events = 0
	default:
		events |= loop.In
	}
	if e.out.waiting {
		events |= loop.Out
	}
	if e.hung && events == loop.Broken {
		events = 0
	}
	return e.file.Want(events)
}

func (e *end) why() Why {
	if e == &e.in.relay.client {
		return ByClient
	}
	return ByServer
}
