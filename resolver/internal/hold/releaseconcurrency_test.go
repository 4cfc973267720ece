package hold

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// held is a client that notes when it is released.
type held struct {
	t        *testing.T
	number   int
	released chan<- int
}

func (h held) Ended(o Outcome) {
	if o.Refused != "" {
		h.t.Errorf("client %d was refused", h.number)
	}
	h.released <- h.number
}

func (held) Try(context.Context, netip.AddrPort) Tried { return Failed }

func TestSoManyHeldClientsAreReleasedAtOnceAndTheNextWhenOneIsAnswered(t *testing.T) {
	t.Parallel()
	const most = 2
	backends := []route.Backend{{Address: netip.MustParseAddrPort("127.0.0.1:7000")}}
	at := func(serving bool, most int) *route.Route {
		backends[0].Serving = serving
		return &route.Route{
			Phase: v1alpha1.PhaseWaking, Hold: route.Hold{MaxConnections: 100, ReleaseConcurrency: most},
			Ports: []route.Port{{Name: "web", Network: route.TCP, Probed: true, Backends: []route.Backend{backends[0]}}},
		}
	}
	q := New(at(false, most), Options{Waker: accepting{}})
	t.Cleanup(func() { q.Close(); q.Wait() })
	released := make(chan int, 100)
	tickets := make([]*Ticket, 12)
	for i := range tickets {
		ticket, err := q.Hold(PortID{"web", route.TCP}, held{t, i, released}, 0)
		if err != nil {
			t.Fatal(err)
		}
		tickets[i] = ticket
	}
	next := func(want int) {
		t.Helper()
		select {
		case got := <-released:
			if got != want {
				t.Fatalf("client %d was released, want %d", got, want)
			}
		case <-time.After(turnTime - time.Second):
			t.Fatalf("client %d was not released", want)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.turns) > most {
			t.Fatalf("%d clients have their turn", len(q.turns))
		}
	}
	q.Update(at(true, most))
	next(0)
	next(1)
	if !tickets[0].Delivered() || !tickets[1].Delivered() {
		t.Error("nobody waits for the answer to a client that was delivered")
	}
	q.mu.Lock()
	if len(released) > 0 || q.waiting != 10 {
		t.Errorf("%d more were released before one was answered, %d wait", len(released), q.waiting)
	}
	q.mu.Unlock()
	tickets[1].Answered()
	tickets[1].Answered() // its end says so again
	next(2)
	tickets[0].Answered()
	next(3)
	// One that goes away, and one that can't be connected.
	tickets[2].Abandon()
	next(4)
	tickets[3].Back(netip.AddrPort{})
	next(3) // it has its place back
	tickets[3].Back(netip.AddrPort{})
	next(5) // but not again: no server may take it
	// Others don't wait for who was let in before the limit was set otherwise.
	q.Update(at(true, 0))
	for want := 6; want < len(tickets); want++ {
		if got := <-released; got != want {
			t.Errorf("client %d was released, want %d", got, want)
		}
	}
	if got := <-released; got != 3 {
		t.Errorf("client %d was released, want the one that came back twice", got)
	}
}

// Where clients go through the resolver for good, they would never be through with their turns if
// each that comes had to stand behind the others.
func TestWhoComesOnceAServerIsUpIsNotReleasedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := func(phase v1alpha1.Phase, serving bool) *route.Route {
			return &route.Route{
				Phase: phase, Hold: route.Hold{MaxConnections: 100, ReleaseConcurrency: 1},
				Ports: []route.Port{{Name: "web", Network: route.TCP, Probed: true, Backends: []route.Backend{
					{Address: netip.MustParseAddrPort("127.0.0.1:7000"), Serving: serving},
				}}},
			}
		}
		q := New(at(v1alpha1.PhaseWaking, false), Options{Waker: accepting{}})
		defer func() { q.Close(); q.Wait() }()
		id := PortID{"web", route.TCP}
		released := make(chan int, 100)
		for i := range 3 {
			ticket, err := q.Hold(id, held{t, i, released}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer ticket.Leave()
		}
		if _, ok := q.Pick(id); ok {
			t.Error("a client is given a server before one is up")
		}
		q.Update(at(v1alpha1.PhaseAwake, true))
		synctest.Wait()
		if len(released) != 1 {
			t.Fatalf("%d are released at once, want 1", len(released))
		}
		if _, ok := q.Pick(id); !ok {
			t.Error("a client that comes to a server that is up stands behind those that were held")
		}
		// It goes away, and a client that comes now waits for another with those that are left.
		q.Update(at(v1alpha1.PhaseAwake, false))
		if _, ok := q.Pick(id); ok {
			t.Error("a client is given a server that is gone")
		}
	})
}

// Each connection that is made only to see whether a server is up is one more that it has to take.
func TestAServerIsNotDialledForEachTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		address := netip.MustParseAddrPort("127.0.0.1:7000")
		var dials atomic.Int32
		q := New(&route.Route{
			Phase: v1alpha1.PhaseAwake, Hold: route.Hold{MaxConnections: 100, ReleaseConcurrency: 1},
			Ports: []route.Port{{Name: "web", Network: route.TCP, Backends: []route.Backend{{Address: address, Serving: true}}}},
		}, Options{Waker: accepting{}, Dial: func(context.Context, netip.AddrPort, time.Duration) (*conn.Stream, error) {
			if dials.Add(1) == 1 {
				return nil, errors.New("connection refused")
			}
			return &conn.Stream{}, nil
		}})
		defer func() { q.Close(); q.Wait() }()
		released := make(chan int, 100)
		tickets := make([]*Ticket, 5)
		for i := range tickets {
			ticket, err := q.Hold(PortID{"web", route.TCP}, held{t, i, released}, 0)
			if err != nil {
				t.Fatal(err)
			}
			tickets[i] = ticket
		}
		for i, ticket := range tickets {
			if got := <-released; got != i {
				t.Fatalf("client %d was released, want %d", got, i)
			}
			ticket.Delivered()
			ticket.Answered()
		}
		if n := dials.Load(); n != 2 {
			t.Errorf("the server is dialled %d times, want until it is up and no more", n)
		}
	})
}

// A relay says so while others' bytes wait for it.
func TestAnAnswerDoesntWaitForTheQueue(t *testing.T) {
	t.Parallel()
	q := &Queue{route: &route.Route{}}
	ticket := &Ticket{queue: q}
	next := &port{queue: q, waiting: []*Ticket{{queue: q}}, rouse: make(chan struct{}, 1)}
	q.ports, q.turns = []*port{next}, []*Ticket{ticket}
	q.mu.Lock()
	said := make(chan struct{})
	go func() {
		ticket.Answered()
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(10 * time.Second):
		t.Error("it waits for the queue's lock")
	}
	q.mu.Unlock()
	<-next.rouse
}

func TestAServerThatDoesntAnswerKeepsNobodyWaitingForLong(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		most int
		// turns are how long ago clients were released.
		turns []time.Duration
		want  time.Duration
	}{
		"no limit":                 {0, []time.Duration{0, 0, 0}, 0},
		"nobody":                   {1, nil, 0},
		"one of two":               {2, []time.Duration{0}, 0},
		"both":                     {2, []time.Duration{3 * time.Second, 0}, 2 * time.Second},
		"one that isn't answered":  {2, []time.Duration{5 * time.Second, 0}, 0},
		"more than are let in now": {1, []time.Duration{3 * time.Second, time.Second}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			q := &Queue{route: &route.Route{Hold: route.Hold{ReleaseConcurrency: c.most}}}
			for _, ago := range c.turns {
				q.turns = append(q.turns, &Ticket{turn: now.Add(-ago)})
			}
			p := &port{queue: q, PortID: PortID{"web", route.TCP}}
			if got := p.untilTurn(now); got != c.want {
				t.Errorf("the next turn is in %s, want %s", got, c.want)
			}
			voice := &port{queue: q, PortID: PortID{"voice", route.UDP}}
			if got := voice.untilTurn(now); got != 0 {
				t.Errorf("datagrams wait for %s", got)
			}
		})
	}
}
