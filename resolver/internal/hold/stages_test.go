package hold

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// wakes is how many wakes were timed as a whole.
func wakes(t *testing.T, registry *prometheus.Registry) (n uint64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "dormouse_resolver_wake_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "stage" && label.GetValue() == string(metrics.StageTotal) {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return n
}

// Where clients are released one at a time, what becomes of them must not keep a wake from being
// timed, nor the next one.
func TestEachWakeIsTimedOnceThoughItsClientsAreReleasedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		address := netip.MustParseAddrPort("127.0.0.1:7000")
		at := func(serving bool) *route.Route {
			return &route.Route{
				Phase: v1alpha1.PhaseWaking, Hold: route.Hold{MaxConnections: 100, ReleaseConcurrency: 1},
				Ports: []route.Port{{
					Name: "web", Network: route.TCP, Protocol: v1alpha1.ProtocolTCP, Probed: true,
					Backends: []route.Backend{{Address: address, Serving: serving}},
				}},
			}
		}
		registry := prometheus.NewRegistry()
		q := New(at(false), Options{Waker: accepting{}, Metrics: metrics.New(registry)})
		defer func() { q.Close(); q.Wait() }()
		released := make(chan int, 100)
		hold := func(number int) *Ticket {
			ticket, err := q.Hold(PortID{"web", route.TCP}, held{t, number, released}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return ticket
		}
		first, second := hold(1), hold(2)
		q.Update(at(true))
		if got := <-released; got != 1 {
			t.Fatalf("client %d is released, want 1", got)
		}
		first.Back(netip.AddrPort{})
		<-released
		if !second.Leave() {
			t.Error("the client that came back has lost its place")
		}
		first.Delivered()
		if n := wakes(t, registry); n != 1 {
			t.Errorf("a wake whose first client had to come back counts as %d", n)
		}
		first.Answered()
		synctest.Wait()

		first, second = hold(3), hold(4)
		<-released
		first.Delivered()
		if !second.Leave() {
			t.Error("two clients are released at once")
		}
		first.Answered()
		q.Update(at(false))
		before := wakes(t, registry)
		first = hold(5)
		q.Update(at(true))
		<-released
		first.Delivered()
		if n := wakes(t, registry) - before; n != 1 {
			t.Errorf("the wake after one whose last clients went away counts as %d", n)
		}
	})
}
