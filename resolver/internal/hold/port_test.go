package hold

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// nobody is a client that must not get into a queue.
type nobody struct{ t *testing.T }

func (n nobody) Ended(o Outcome) { n.t.Errorf("the client's wait in the queue ended: %+v", o) }

func (n nobody) Try(context.Context, netip.AddrPort) Tried { return Failed }

// A port that goes from UDP to TCP keeps its name, and clients that came by the former are
// still on their way: a connection to the latter's backend would be nobody's.
func TestAPortWithAnotherTransportIsAnotherPort(t *testing.T) {
	t.Parallel()
	backends := []route.Backend{{Address: netip.MustParseAddrPort("127.0.0.1:7000"), Serving: true}}
	at := func(network route.Network) *route.Route {
		return &route.Route{Phase: v1alpha1.PhaseAwake, Ports: []route.Port{{Name: "game", Network: network, Backends: backends}}}
	}
	for _, change := range [][2]route.Network{{route.UDP, route.TCP}, {route.TCP, route.UDP}} {
		q := New(at(change[0]), Options{})
		q.Update(at(change[1]))
		former := PortID{"game", change[0]}
		if _, err := q.Hold(former, nobody{t}, 0); !errors.Is(err, ErrGone) {
			t.Errorf("a client of the former %s port is held: %v", change[0], err)
		}
		if g, ok := q.Pick(former); ok {
			t.Errorf("a client of the former %s port is sent to %s", change[0], g.Address)
		}
		if g, ok := q.PickForQuery(former); ok {
			t.Errorf("a query of the former %s port is sent to %s", change[0], g.Address)
		}
		q.Close()
		q.Wait()
	}
}

// Without a readiness probe nothing tells that a server is up, until a client of this resolver has learnt it: who may
// wait waits for that, also while the service is awake. Who may not is passed on then, and never to one that wakes.
func TestOnlyWhoMayNotWaitIsPassedOnUnlearnt(t *testing.T) {
	t.Parallel()
	backends := []route.Backend{{Address: netip.MustParseAddrPort("127.0.0.1:7000"), Serving: true}}
	for _, network := range []route.Network{route.TCP, route.UDP} {
		for phase, passes := range map[v1alpha1.Phase]bool{v1alpha1.PhaseAwake: true, v1alpha1.PhaseWaking: false, v1alpha1.PhaseAsleep: false} {
			q := New(&route.Route{Phase: phase, Ports: []route.Port{{Name: "game", Network: network, Backends: backends}}}, Options{})
			port := PortID{"game", network}
			if g, ok := q.Pick(port); ok {
				t.Errorf("%s, %s: who may wait is sent to %s", network, phase, g.Address)
			}
			g, ok := q.PickUnasked(port)
			if ok != passes || ok && g.Unproven != (network == route.UDP) {
				t.Errorf("%s, %s: who may not wait gets %+v, %t", network, phase, g, ok)
			}
			q.Close()
		}
	}
}
