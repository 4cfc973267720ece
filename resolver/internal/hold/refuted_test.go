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

func (w waiter) Released(g Release)   { w.releases <- g }
func (w waiter) Refused(proto.Reason) { w.t.Error("the client was refused") }

// A game without a readiness probe of its own is ready as soon as its container runs, long before
// it listens. Clients that were released to it once must not dial it in turn, which would take
// longer each time: the queue finds out when it takes connections.
func TestAServerThatIsReadyBeforeItListens(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddrPort(listener.Addr().String())
	const refusals = 20
	var dials atomic.Int32
	q := New(&route.Route{Phase: v1alpha1.PhaseAwake, Hold: route.Hold{Timeout: time.Minute, MaxConnections: 10}, Ports: []route.Port{{
		Name: "game", Network: route.TCP, Probed: true, Backends: []route.Backend{
			{Address: address, Serving: true}, {Address: netip.MustParseAddrPort("127.0.0.1:1")},
		},
	}}}, Options{Waker: accepting{}, Dial: func(ctx context.Context, to netip.AddrPort, timeout time.Duration) (*conn.Stream, error) {
		if to != address {
			t.Errorf("%s is dialled, which doesn't serve", to)
		}
		if dials.Add(1) <= refusals {
			return nil, errors.New("connection refused")
		}
		return conn.Dial(ctx, to, timeout)
	}})
	defer q.Wait()
	defer q.Close()
	id := PortID{"game", route.TCP}
	w := waiter{t, make(chan Release, 10)}
	ticket, err := q.Hold(id, w, 0)
	if err != nil {
		t.Fatal(err)
	}
	if first := <-w.releases; first.Address != address || first.Conn != nil || dials.Load() != 0 {
		t.Errorf("the client is released to %s, %d dials later; want %s, by the probe's word alone", first.Address, dials.Load(), address)
	}
	ticket.Back(address)
	second := <-w.releases
	if second.Conn == nil || dials.Load() != refusals+1 {
		t.Fatalf("the client is released with connection %v after %d dials, want one after %d", second.Conn, dials.Load(), refusals+1)
	}
	_ = second.Conn.Close()
	ticket.Delivered()
	if g, ok := q.Pick(id); !ok || g.Address != address {
		t.Errorf("the next client has to wait, or is sent to %s", g.Address)
	}
	// It restarts: whoever finds out first doesn't leave it alone for a second.
	dials.Store(0)
	q.Avoid(id, address)
	if _, ok := q.Pick(id); ok {
		t.Error("a client is sent to a server that has just refused another")
	}
	if ticket, err = q.Hold(id, w, 0); err != nil {
		t.Fatal(err)
	}
	if third := <-w.releases; third.Conn == nil || dials.Load() != refusals+1 {
		t.Fatalf("the client is released with connection %v after %d dials, want one after %d", third.Conn, dials.Load(), refusals+1)
	} else {
		_ = third.Conn.Close()
	}
	ticket.Delivered()
}

// A game that nobody asks whether it listens is dialled, though its pod isn't ready.
func TestAGameThatNobodyAsksIsDialled(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddrPort(listener.Addr().String())
	const refusals = 3
	var dials atomic.Int32
	at := func(b route.Backend) *route.Route {
		b.Address = address
		return &route.Route{Phase: v1alpha1.PhaseWaking, Hold: route.Hold{Timeout: time.Minute, MaxConnections: 10}, Ports: []route.Port{{
			Name: "game", Network: route.TCP, Probed: true, Backends: []route.Backend{b},
		}}}
	}
	q := New(at(route.Backend{}), Options{Waker: accepting{}, Dial: func(ctx context.Context, to netip.AddrPort, timeout time.Duration) (*conn.Stream, error) {
		if dials.Add(1) <= refusals {
			return nil, errors.New("connection refused")
		}
		return conn.Dial(ctx, to, timeout)
	}})
	defer q.Wait()
	defer q.Close()
	id := PortID{"game", route.TCP}
	w := waiter{t, make(chan Release, 10)}
	var tickets []*Ticket
	for range 2 {
		ticket, err := q.Hold(id, w, 0)
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	q.Update(at(route.Backend{Unasked: true}))
	first, second := <-w.releases, <-w.releases
	if first.Conn == nil || second.Conn != nil || second.Address != address || dials.Load() != refusals+1 {
		t.Errorf("the clients are released to %+v and %+v after %d dials, want one with the connection that is made after %d", first, second, dials.Load(), refusals+1)
	}
	if first.Conn != nil {
		_ = first.Conn.Close()
	}
	for _, ticket := range tickets {
		ticket.Delivered()
	}
	if _, ok := q.Pick(id); !ok {
		t.Error("the next client has to wait")
	}
	// The game says that it takes nobody.
	q.Update(at(route.Backend{}))
	if _, ok := q.Pick(id); ok {
		t.Error("a client is sent to a game that takes nobody")
	}
}
