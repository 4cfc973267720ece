package httpserver

import (
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/internal/callers"
)

// Pauses after an error of a listener that is open, such as too many open files.
const (
	acceptFirst = 5 * time.Millisecond
	acceptLast  = time.Second
)

// Reasons why the gate closes connections, for the counter's label.
const (
	tooMany         = "too_many"
	tooManyOfCaller = "too_many_of_caller"
)

// turn is how many connections are accepted before others get the processor: each has a goroutine that wants it,
// and thousands that come at once would be served before everybody who is there already.
const turn = 16

// gate is a listener that survives errors until it is closed, and that bounds the connections,
// in total and for each caller. Beyond a bound the connection that has waited longest for its
// caller makes room, so that nobody can keep others out by filling the gate. One that is marked
// with Answering stays.
type gate struct {
	net.Listener
	log            logr.Logger
	most, ofCaller int
	// callerOf is what counts as one caller.
	callerOf func(netip.Addr) netip.Prefix
	closed   *prometheus.CounterVec
	done     chan struct{}
	end      sync.Once
	ended    error
	accepted atomic.Uint64

	mu      sync.Mutex
	open    int
	waiting list.List // of *connection, the one that has waited longest first
	callers map[netip.Prefix]*caller
	// unanswered is what its connections have sent.
	unanswered unanswered
}

// caller is whoever has connections.
type caller struct {
	open    int
	waiting list.List // in the same order
}

// connection is a connection that the gate admitted.
type connection struct {
	net.Conn
	gate   *gate
	from   netip.Prefix
	caller *caller
	// place and own are its places among all waiting connections and among its caller's; nil
	// while it is marked with Answering.
	place, own *list.Element
	// answers is how many requests are answered on it, of which HTTP/2 has any number at once.
	answers int
	gone    bool
	// asks is how many requests are under way, whoever asks. Sent is its place among those that have sent something
	// that isn't answered, and bytes how much; nil: it hasn't.
	asks  int
	sent  *list.Element
	bytes int64
}

// Bounds are how many connections a gate lets in, in total and of one caller, and how many bytes they may have sent
// in all that aren't answered; 0: any number. Each request that is marked with Asking counts as OfRequest bytes more,
// for what answering it takes. Those that are marked with Answering don't count.
type Bounds struct {
	Connections, OfCaller int
	Unanswered, OfRequest int64
}

// NewGate bounds the connections of a listener of another server, in total and for each caller, as
// those of a Server are. Its callers may be anybody in the internet, where one host gets a /64 of
// IPv6. closed counts those that it closed by reason: too_many, too_many_of_caller or
// too_much_unanswered. Whoever answers a request marks its connection with Asking, and with Answering
// where not anybody may send such a request.
func NewGate(ln net.Listener, bounds Bounds, closed *prometheus.CounterVec, log logr.Logger) net.Listener {
	g := newGate(ln, bounds.Connections, bounds.OfCaller, closed, log)
	g.callerOf = callers.Of
	g.unanswered.most, g.unanswered.ofRequest = bounds.Unanswered, bounds.OfRequest
	return g
}

// newGate makes a gate whose callers have an address each: in a cluster's network all pods may have
// one /64.
func newGate(ln net.Listener, most, ofCaller int, closed *prometheus.CounterVec, log logr.Logger) *gate {
	return &gate{
		Listener: ln, log: log, most: most, ofCaller: ofCaller, closed: closed, callerOf: single,
		done: make(chan struct{}), callers: map[netip.Prefix]*caller{},
	}
}

// single is an address as a caller of its own.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.accept()
		if err != nil {
			return nil, err
		}
		if g.accepted.Add(1)%turn == 0 {
			runtime.Gosched()
		}
		if admitted := g.admit(c); admitted != nil {
			return admitted, nil
		}
	}
}

// accept waits for a connection, through temporary errors.
func (g *gate) accept() (net.Conn, error) {
	for pause := acceptFirst; ; pause = min(2*pause, acceptLast) {
		c, err := g.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		if pause == acceptFirst {
			g.log.Error(err, "HTTP connections can't be accepted, which is tried again")
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-g.done:
			timer.Stop()
			return nil, net.ErrClosed
		}
	}
}

// Close implements net.Listener. Only the first call does anything.
func (g *gate) Close() error {
	g.end.Do(func() {
		close(g.done)
		g.ended = g.Listener.Close()
	})
	return g.ended
}

// admit lets a connection in, or closes it and returns nil.
func (g *gate) admit(c net.Conn) *connection {
	admitted := &connection{Conn: c, gate: g, from: g.callerOf(addressOf(c))}
	left, reason := g.takePlace(admitted)
	if reason != "" {
		g.closed.WithLabelValues(reason).Inc()
	}
	if left != nil {
		_ = left.Conn.Close()
	}
	if left == admitted {
		return nil
	}
	return admitted
}

func addressOf(c net.Conn) netip.Addr {
	address, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return address.AddrPort().Addr().Unmap()
}

// takePlace takes in a connection. Left is the one that makes room, which is the new one where
// none waits, and nil where there is room.
func (g *gate) takePlace(c *connection) (left *connection, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	who := g.callers[c.from]
	if who == nil {
		who = &caller{}
	}
	var waiting *list.List
	switch {
	case who.open >= g.ofCaller:
		reason, waiting = tooManyOfCaller, &who.waiting
	case g.open >= g.most:
		reason, waiting = tooMany, &g.waiting
	}
	if waiting != nil {
		longest := waiting.Front()
		if longest == nil {
			return c, reason
		}
		left = longest.Value.(*connection)
		g.forget(left)
	}
	// The caller's last connection may just have been closed.
	g.callers[c.from], c.caller = who, who
	who.open++
	g.open++
	g.queue(c)
	return left, reason
}

// queue puts a connection last among the waiting ones.
func (g *gate) queue(c *connection) {
	c.place, c.own = g.waiting.PushBack(c), c.caller.waiting.PushBack(c)
}

// unqueue removes it from them.
func (g *gate) unqueue(c *connection) {
	if c.place != nil {
		g.waiting.Remove(c.place)
		c.caller.waiting.Remove(c.own)
		c.place, c.own = nil, nil
	}
}

// forget removes a connection.
func (g *gate) forget(c *connection) {
	if c.gone {
		return
	}
	c.gone = true
	g.unqueue(c)
	g.answered(c)
	g.open--
	if c.caller.open--; c.caller.open == 0 {
		delete(g.callers, c.from)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.gate.mu.Lock()
	c.gate.forget(c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// Answering marks a connection of a gate's, or one of TLS on it, as answering a request, until done. It
// isn't closed to make room meanwhile.
func Answering(c net.Conn) (done func()) {
	held := gated(c)
	if held == nil {
		return func() {}
	}
	g := held.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unqueue(held)
	g.answered(held)
	held.answers++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if held.answers--; held.answers == 0 && !held.gone {
			g.queue(held)
		}
	}
}

// Asking notes that a request came on a connection of a gate's, or one of TLS on it, which is answered once done is
// called: of those that wait it is the last that makes room. It is for requests that anybody may send, and whose
// answers may wait for a caller who doesn't read them.
func Asking(c net.Conn) (done func()) {
	held := gated(c)
	if held == nil {
		return func() {}
	}
	g := held.gate
	g.mu.Lock()
	if held.place != nil {
		g.waiting.MoveToBack(held.place)
		held.caller.waiting.MoveToBack(held.own)
	}
	held.asks++
	g.mu.Unlock()
	g.received(held, g.unanswered.ofRequest)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if held.asks--; held.asks == 0 {
			g.answered(held)
		}
	}
}

// gated is the gate's connection behind another one; nil where no gate has it.
func gated(c net.Conn) *connection {
	if back, is := c.(*again); is {
		c = back.Conn
	}
	if secure, is := c.(*tls.Conn); is {
		c = secure.NetConn()
	}
	held, _ := c.(*connection)
	return held
}
