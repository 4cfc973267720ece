package hold

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

type accepting struct{}

func (accepting) Wake(context.Context, string, string, int) wake.Result {
	return wake.Result{Outcome: wake.Accepted, Phase: v1alpha1.PhaseAwake}
}

// waiter is a client that passes on what it is released to.
type waiter struct {
	t        *testing.T
	releases chan Release
}

func (w waiter) Ended(o Outcome) {
	if o.Refused != "" {
		w.t.Error("the client was refused")
	}
	w.releases <- o.Release
}

func (waiter) Try(context.Context, netip.AddrPort) Tried { return Failed }

// probedQueue is the queue of a service whose pods have a readiness probe.
type probedQueue struct {
	*Queue
	waiter
	// address is where something listens. It refuses so many connections first.
	address  netip.AddrPort
	refusals atomic.Int32
	dials    atomic.Int32
	// asked has a token for each query of a server that loads.
	asked chan struct{}
}

var probedPort = PortID{"game", route.TCP}

// newProbedQueue makes one with a backend at the address, and more.
func newProbedQueue(t *testing.T, first route.Backend, more ...route.Backend) *probedQueue {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q := &probedQueue{waiter: waiter{t, make(chan Release, 10)}, address: netip.MustParseAddrPort(listener.Addr().String()), asked: make(chan struct{}, 1000)}
	q.Queue = New(q.route(first, more...), Options{
		Waker: accepting{}, Protocols: map[v1alpha1.Protocol]proto.Protocol{v1alpha1.ProtocolMinecraft: loads{asked: q.asked}},
		Dial: func(ctx context.Context, to netip.AddrPort, timeout time.Duration) (*conn.Stream, error) {
			if to != q.address {
				t.Errorf("%s is dialled", to)
			}
			if q.dials.Add(1); q.refusals.Add(-1) >= 0 {
				return nil, errors.New("connection refused")
			}
			return conn.Dial(ctx, to, timeout)
		},
	})
	t.Cleanup(func() {
		q.Close()
		q.Wait()
		_ = listener.Close()
	})
	return q
}

func (q *probedQueue) route(first route.Backend, more ...route.Backend) *route.Route {
	first.Address = q.address
	return &route.Route{Phase: v1alpha1.PhaseAwake, Hold: route.Hold{Timeout: time.Minute, MaxConnections: 10}, Ports: []route.Port{{
		Name: probedPort.Name, Network: probedPort.Network, Probed: true, Backends: append([]route.Backend{first}, more...),
	}}}
}

func (q *probedQueue) hold() *Ticket {
	q.t.Helper()
	ticket, err := q.Hold(probedPort, q.waiter, 0)
	if err != nil {
		q.t.Fatal(err)
	}
	return ticket
}

// wantMade waits until a client is released with a connection, which it closes.
func (q *probedQueue) wantMade(when string, dials int32) {
	q.t.Helper()
	g := <-q.releases
	if g.Conn == nil || q.dials.Load() != dials {
		q.t.Fatalf("%s the client is released with connection %v after %d dials, want one after %d", when, g.Conn, q.dials.Load(), dials)
	}
	_ = g.Conn.Close()
}

// A game without a readiness probe of its own is ready as soon as its container runs, long before
// it listens. Clients that were released to it once must not dial it in turn, which would take
// longer each time: the queue finds out when it takes connections.
func TestAServerThatIsReadyBeforeItListens(t *testing.T) {
	t.Parallel()
	q := newProbedQueue(t, route.Backend{Serving: true}, route.Backend{Address: netip.MustParseAddrPort("127.0.0.1:1")})
	q.refusals.Store(20)
	ticket := q.hold()
	if first := <-q.releases; first.Address != q.address || first.Conn != nil || q.dials.Load() != 0 {
		t.Errorf("the client is released to %s, %d dials later; want %s, by the probe's word alone", first.Address, q.dials.Load(), q.address)
	}
	ticket.Back(q.address)
	q.wantMade("once it listens", 21)
	ticket.Delivered()
	if g, ok := q.Pick(probedPort); !ok || g.Address != q.address {
		t.Errorf("the next client has to wait, or is sent to %s", g.Address)
	}
	// It restarts: whoever finds out first doesn't leave it alone for a second.
	q.dials.Store(0)
	q.refusals.Store(20)
	q.Avoid(probedPort, q.address)
	if _, ok := q.Pick(probedPort); ok {
		t.Error("a client is sent to a server that has just refused another")
	}
	ticket = q.hold()
	q.wantMade("once it listens again", 21)
	ticket.Delivered()
}

// A connection that isn't answered in time says less than one that is refused: its packet may be
// lost. Where there is no other server nobody is made to wait for that.
func TestALoneServerThatWasSilentStaysInUse(t *testing.T) {
	t.Parallel()
	q := newProbedQueue(t, route.Backend{Serving: true})
	for range 3 {
		g, ok := q.Pick(probedPort)
		if !ok {
			t.Fatal("a client has to wait")
		}
		q.Silent(probedPort, g, time.Now())
	}
}

// A server that takes connections and none of what was held is dialled less and less often.
func TestAServerThatFailsItsClientsIsDialledLessOften(t *testing.T) {
	t.Parallel()
	q := newProbedQueue(t, route.Backend{Serving: true})
	ticket := q.hold()
	for i := range 4 {
		if g := <-q.releases; g.Conn != nil {
			_ = g.Conn.Close()
		}
		ticket.Back(q.address)
		q.mu.Lock()
		failures := q.ports[0].failures
		q.mu.Unlock()
		if failures != i+1 {
			t.Fatalf("of %d failures %d count", i+1, failures)
		}
	}
	g := <-q.releases
	_ = g.Conn.Close()
	ticket.Delivered()
}

// A game that nobody asks is dialled, though its pod isn't ready.
func TestAGameThatNobodyAsksIsDialled(t *testing.T) {
	t.Parallel()
	q := newProbedQueue(t, route.Backend{})
	q.refusals.Store(3)
	tickets := []*Ticket{q.hold(), q.hold()}
	q.Update(q.route(route.Backend{Unasked: true}))
	q.wantMade("once it listens", 4)
	if second := <-q.releases; second.Conn != nil || second.Address != q.address {
		t.Errorf("the second client is released to %+v", second)
	}
	for _, ticket := range tickets {
		ticket.Delivered()
	}
	if _, ok := q.Pick(probedPort); !ok {
		t.Error("the next client has to wait")
	}
	// The game says that it takes nobody.
	q.Update(q.route(route.Backend{}))
	if _, ok := q.Pick(probedPort); ok {
		t.Error("a client is sent to a game that takes nobody")
	}
}

// loads is a protocol whose server takes connections while it loads, and answers no query then.
type loads struct {
	proto.Protocol
	asked chan struct{}
}

func (l loads) Ask(net.Conn) (proto.Answers, error) {
	l.asked <- struct{}{}
	return proto.Answers{}, errors.New("it loads")
}

// In a protocol that can be queried a connection says too little of a game that nobody asks.
func TestAGameThatLoadsGetsNobody(t *testing.T) {
	t.Parallel()
	q := newProbedQueue(t, route.Backend{})
	with := func(b route.Backend) *route.Route {
		r := q.route(b)
		r.Ports[0].Protocol = v1alpha1.ProtocolMinecraft
		return r
	}
	ticket := q.hold()
	q.Update(with(route.Backend{Unasked: true}))
	for range 3 {
		<-q.asked
	}
	select {
	case g := <-q.releases:
		t.Errorf("the client is released to %+v while the game loads", g)
	default:
	}
	q.Update(with(route.Backend{Serving: true}))
	for released := false; !released; {
		select {
		case <-q.asked: // one was under way
		case <-q.releases:
			released = true
		}
	}
	ticket.Delivered()
}
