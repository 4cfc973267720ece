package route

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Its own pod is ready, and what it needs isn't.
func TestAServiceThatWaitsForOthersGivesNobodyABackend(t *testing.T) {
	t.Parallel()
	s := newSink()
	table := NewTable(s)
	table.SetSlice(newSlice("s1", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", true, false).pod().EndpointSlice)
	for _, c := range []struct {
		phase    v1alpha1.Phase
		waitsFor []string
		open     bool
	}{
		{v1alpha1.PhaseWaking, nil, true},
		{v1alpha1.PhaseWaking, []string{"database"}, false},
		{v1alpha1.PhaseAsleep, []string{"database"}, false},
		{v1alpha1.PhaseWaking, []string{"database", "cache"}, false},
		{v1alpha1.PhaseAwake, []string{"database"}, true}, // it is up all the same
		{v1alpha1.PhaseAwake, nil, true},
	} {
		lobby := newService("lobby", "u1", time.Hour).port("game", v1alpha1.ProtocolTCP, 10001)
		lobby.Status.Phase, lobby.Status.WaitsFor = c.phase, c.waitsFor
		stripped, err := stripService(lobby.ElasticService)
		if err != nil {
			t.Fatal(err)
		}
		table.SetService(stripped.(*v1alpha1.ElasticService))
		// Clients that are there stay: the address is still the port's.
		got := s.routes["u1"].Ports[0].Backends
		if len(got) != 1 || got[0].Terminating == c.open {
			t.Errorf("%s and waiting for %v it has %+v", c.phase, c.waitsFor, got)
		}
	}
}
