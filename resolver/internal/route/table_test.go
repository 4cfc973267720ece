package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// sink notes what it is told.
type sink struct {
	routes map[types.UID]*Route
	calls  []string
}

func newSink() *sink { return &sink{routes: map[types.UID]*Route{}} }

func (s *sink) Update(r *Route) {
	s.routes[r.UID] = r
	s.calls = append(s.calls, "update "+string(r.UID))
}

func (s *sink) Remove(uid types.UID) {
	delete(s.routes, uid)
	s.calls = append(s.calls, "remove "+string(uid))
}

func (s *sink) Players(route, pod types.UID, players *Players) {
	if players == nil {
		s.calls = append(s.calls, fmt.Sprintf("players %s %s gone", route, pod))
		return
	}
	s.calls = append(s.calls, fmt.Sprintf("players %s %s %d/%d", route, pod, players.Current, players.Capacity))
}

func (s *sink) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.calls); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	s.calls = nil
}

func (s *sink) served(uid types.UID) bool {
	return s.routes[uid] != nil && s.routes[uid].Ports[0].Taken == ""
}

func TestTheOlderOfTwoRoutesHasThePort(t *testing.T) {
	tcp := v1alpha1.ProtocolTCP
	cases := map[string]struct {
		first, second service
		want          types.UID
	}{
		"the older comes first": {
			newService("a", "ua", 2*time.Hour).port("p", tcp, 10001), newService("b", "ub", time.Hour).port("p", tcp, 10001), "ua",
		},
		"the older comes second": {
			newService("b", "ub", time.Hour).port("p", tcp, 10001), newService("a", "ua", 2*time.Hour).port("p", tcp, 10001), "ua",
		},
		"of the same age the smaller UID": {
			newService("b", "ub", time.Hour).port("p", tcp, 10001), newService("a", "ua", time.Hour).port("p", tcp, 10001), "ua",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSink()
			table := NewTable(s)
			table.SetService(tc.first.ElasticService)
			table.SetService(tc.second.ElasticService)
			for uid := range s.routes {
				if s.served(uid) != (uid == tc.want) {
					t.Errorf("%s is served: %t", uid, s.served(uid))
				}
			}
			// The one that waited has it once the other is gone.
			var other types.UID = "ub"
			table.DeleteService("games", "a")
			if !s.served(other) {
				t.Error("the port that got free is not served")
			}
		})
	}
}

func TestTheLoserIsToldBeforeTheWinner(t *testing.T) {
	s := newSink()
	table := NewTable(s)
	table.SetService(newService("young", "u2", time.Hour).port("p", v1alpha1.ProtocolTCP, 10001).ElasticService)
	s.calls = nil
	table.SetService(newService("old", "u1", 2*time.Hour).port("p", v1alpha1.ProtocolTCP, 10001).ElasticService)
	s.expect(t, "update u2", "update u1")
}

func TestTheSameNumberForTCPAndUDPIsNoConflict(t *testing.T) {
	s := newSink()
	table := NewTable(s)
	table.SetService(newService("a", "ua", 0).port("p", v1alpha1.ProtocolTCP, 10001).ElasticService)
	table.SetService(newService("b", "ub", 0).port("p", v1alpha1.ProtocolUDP, 10001).ElasticService)
	if !s.served("ua") || !s.served("ub") {
		t.Error("one of them is not served")
	}
}

func TestTheTableTellsWhatChanges(t *testing.T) {
	s := newSink()
	table := NewTable(s)
	lobby := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolTCP, 10001)
	pods := newSlice("s1", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", true, false)

	table.SetSlice(pods.EndpointSlice)
	s.expect(t)
	table.SetService(lobby.ElasticService)
	s.expect(t, "update u1")
	if got := len(s.routes["u1"].Ports[0].Backends); got != 1 {
		t.Errorf("%d backends, want 1", got)
	}
	// Nothing that matters has changed.
	table.SetService(lobby.DeepCopy())
	table.SetSlice(pods.DeepCopy())
	s.expect(t)
	before := s.routes["u1"]
	table.SetService(service{lobby.DeepCopy()}.phase(v1alpha1.PhaseWaking).ElasticService)
	s.expect(t, "update u1")
	if before.Phase != v1alpha1.PhaseAsleep {
		t.Error("a route that was handed out has changed")
	}
	table.DeleteSlice(pods.EndpointSlice)
	s.expect(t, "update u1")
	if got := len(s.routes["u1"].Ports[0].Backends); got != 0 {
		t.Errorf("%d backends, want 0", got)
	}
	// Deleted and created again between two looks.
	table.SetService(newService("lobby", "u2", 0).port("game", v1alpha1.ProtocolTCP, 10001).ElasticService)
	s.expect(t, "remove u1", "update u2")
	table.DeleteService("games", "lobby")
	s.expect(t, "remove u2")
	table.DeleteService("games", "lobby")
	s.expect(t)
	if len(table.claims)+len(table.private)+len(table.names)+len(table.slices)+len(table.shown)+len(table.targets) != 0 {
		t.Error("something is left of a service that is gone")
	}
}

func TestHandlersTakeObjectsThatWereDeletedUnseen(t *testing.T) {
	s := newSink()
	table := NewTable(s)
	h := handlers(table.SetService, func(es *v1alpha1.ElasticService) { table.DeleteService(es.Namespace, es.Name) })
	lobby := newService("lobby", "u1", 0)
	h.OnAdd(lobby.ElasticService, true)
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "games/lobby", Obj: lobby.ElasticService})
	s.expect(t, "update u1", "remove u1")
}
