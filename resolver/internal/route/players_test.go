package route

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// reports is a Server of a Fleet whose pod's game reported players.
func reports(name, fleet, pod string, current, capacity int32) *v1alpha1.Server {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Labels: map[string]string{wellknown.FleetLabel: fleet}}}
	s.Status.Players = &v1alpha1.PlayersStatus{Current: current, Capacity: capacity, IDs: []string{"anna"}}
	s.Status.Game = &v1alpha1.GameStatus{PodUID: pod, State: v1alpha1.GameReady}
	return s
}

func TestPlayersAreToldToThoseWhoChooseServers(t *testing.T) {
	t.Parallel()
	s := newSink()
	table := NewTable(s)
	table.SetServer(reports("a", "lobby", "pod-a", 3, 10))
	table.SetServer(reports("x", "other", "pod-x", 9, 9))

	// Who doesn't choose is told nothing.
	lobby := newService("lobby", "u1", time.Hour)
	lobby.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "lobby"}
	table.SetService(lobby.ElasticService)
	table.SetServer(reports("a", "lobby", "pod-a", 4, 10))
	s.expect(t, "update u1")

	// Who begins to is told all, and then what changes.
	chooses := service{lobby.DeepCopy()}
	table.SetService(never(chooses, "", nil).ElasticService)
	s.expect(t, "update u1", "players u1 pod-a 4/10")
	table.SetServer(reports("a", "lobby", "pod-a", 5, 10))
	table.SetServer(reports("a", "lobby", "pod-a", 5, 10))
	table.SetServer(reports("x", "other", "pod-x", 8, 9))
	s.expect(t, "players u1 pod-a 5/10")

	// Another pod of the Server has players of its own.
	table.SetServer(reports("a", "lobby", "pod-b", 0, 10))
	s.expect(t, "players u1 pod-a gone", "players u1 pod-b 0/10")
	silent := reports("a", "lobby", "", 0, 10)
	silent.Status.Game = nil
	table.SetServer(silent)
	s.expect(t, "players u1 pod-b gone")
	table.SetServer(reports("a", "lobby", "pod-c", 1, 10))
	table.DeleteServer(reports("a", "lobby", "pod-c", 1, 10))
	s.expect(t, "players u1 pod-c 1/10", "players u1 pod-c gone")

	// A new version of what is served changes nothing about that.
	table.SetServer(reports("a", "lobby", "pod-d", 1, 10))
	s.expect(t, "players u1 pod-d 1/10")
	packed := service{chooses.DeepCopy()}
	table.SetService(never(packed, v1alpha1.BalancePacked, nil).ElasticService)
	s.expect(t, "update u1")
	other := service{packed.DeepCopy()}
	other.Spec.ScaleTargetRef.Name = "other"
	table.SetService(other.ElasticService)
	slices.Sort(s.calls)
	s.expect(t, "players u1 pod-d gone", "players u1 pod-x 8/9", "update u1")
}

func TestAStrippedServerStillTellsItsPlayers(t *testing.T) {
	t.Parallel()
	stripped, err := stripServer(reports("a", "lobby", "pod-a", 3, 10))
	if err != nil {
		t.Fatal(err)
	}
	slim := stripped.(*v1alpha1.Server)
	if got, ok := reportOf(slim); !ok || got.pod != "pod-a" || got.players != (Players{3, 10}) {
		t.Errorf("got %+v, %t", got, ok)
	}
	if len(slim.Status.Players.IDs) > 0 {
		t.Error("who plays is kept, which nobody needs")
	}
}

func TestTrusts(t *testing.T) {
	t.Parallel()
	p := Proxy{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}}
	for address, want := range map[string]bool{"10.255.0.1": true, "11.0.0.1": false, "2001:db8::1": true, "2001:db9::1": false} {
		if got := p.Trusts(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is trusted: %t, want %t", address, got, want)
		}
	}
}
