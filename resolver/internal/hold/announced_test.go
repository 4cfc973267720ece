package hold

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// announcing is an operator that answers each call before the wake of woken is in the status, and counts the calls.
type announcing struct {
	woken time.Time
	calls atomic.Int32
}

func (a *announcing) Wake(context.Context, string, string, int) wake.Result {
	a.calls.Add(1)
	return wake.Result{Outcome: wake.Accepted, Phase: v1alpha1.PhaseWaking, LastWakeTime: a.woken}
}

// servedRoute has one backend that serves.
func servedRoute() *route.Route {
	return &route.Route{
		Phase: v1alpha1.PhaseAwake, Hold: route.Hold{MaxConnections: 100},
		Ports: []route.Port{{
			Name: "web", Network: route.TCP, Probed: true,
			Backends: []route.Backend{{Address: netip.MustParseAddrPort("127.0.0.1:7000"), Serving: true, Pod: "pod"}},
		}},
	}
}

// The first client of a queue that was empty comes while the loop still pauses for those who went away.
func TestTheFirstClientOfAnEmptyQueueForgetsAnAnnouncedWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		operator := &announcing{woken: time.Now()}
		asleep := servedRoute()
		asleep.Phase = v1alpha1.PhaseAsleep
		q := New(asleep, Options{Waker: operator})
		defer func() { q.Close(); q.Wait() }()
		released := make(chan int, 1)
		hold := func(number int) *Ticket {
			ticket, err := q.Hold(PortID{"web", route.TCP}, held{t, number, released}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return ticket
		}
		first := hold(1)
		synctest.Wait()
		q.Update(servedRoute())
		synctest.Wait()
		if operator.calls.Load() != 1 || len(released) > 0 {
			t.Fatalf("the operator is called %d times and %d clients are connected, want one call, and that the client waits for its wake", operator.calls.Load(), len(released))
		}
		if !first.Leave() {
			t.Fatal("the client can't go away")
		}
		began := time.Now()
		hold(2)
		select {
		case number := <-released:
			if number != 2 || time.Since(began) > 0 {
				t.Errorf("client %d is connected after %s, want the one that has come, at once", number, time.Since(began))
			}
		case <-time.After(time.Minute):
			t.Error("the client that has come waits for the wake of the one that went away")
		}
	})
}

// Those who wait for room have no reason to ask often, but where they may wait for a wake as well.
func TestWhoWaitsForRoomAsksAsOftenAsOthersUntilTheAnnouncedWakeIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		operator := &announcing{woken: time.Now()}
		full := func(woken time.Time) *route.Route {
			r := servedRoute()
			r.Balance, r.LastWakeTime = v1alpha1.BalancePacked, woken
			return r
		}
		q := New(full(time.Time{}), Options{Waker: operator})
		defer func() { q.Close(); q.Wait() }()
		q.Players("pod", &route.Players{Current: 8, Capacity: 8})
		ticket, err := q.Hold(PortID{"web", route.TCP}, held{t, 1, make(chan int, 1)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer ticket.Leave()
		asked := func(d time.Duration) int32 {
			before := operator.calls.Load()
			<-time.After(d)
			synctest.Wait()
			return operator.calls.Load() - before
		}
		<-time.After(wakePeriod / 2)
		if n := asked(5 * wakePeriod); n != 5 {
			t.Errorf("the operator is asked %d times in five periods before the wake is there, want 5", n)
		}
		q.Update(full(operator.woken))
		if n := asked(5 * wakePeriod); n != 0 {
			t.Errorf("the operator is asked %d times in five periods once it is, want 0", n)
		}
		if n := asked(crowdedPeriod); n != 1 {
			t.Errorf("the operator is asked %d times in %s once it is, want 1", n, crowdedPeriod)
		}
	})
}
