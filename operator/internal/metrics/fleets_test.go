package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestOnlyTheLeaderTellsOfFleets(t *testing.T) {
	fleet := &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobbies", UID: "1"},
		Status:     v1alpha1.FleetStatus{Players: 7, Capacity: 20},
	}
	asleep := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "asleep"}, Spec: v1alpha1.FleetSpec{Replicas: new(int32)}}
	empty := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "empty"}}
	server := func(name string, owner types.UID, state v1alpha1.ServerState) *v1alpha1.Server {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name}, Status: v1alpha1.ServerStatus{State: state}}
		if owner != "" {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: "lobbies", UID: owner, Controller: new(true)}}
		}
		return s
	}
	leads := make(chan struct{})
	c := newCluster(t, leads)
	c.add(fleet, asleep, empty,
		server("a", "1", v1alpha1.ServerReady), server("b", "1", v1alpha1.ServerReady), server("c", "1", ""), server("d", "1", v1alpha1.ServerDraining),
		server("alone", "", v1alpha1.ServerReady), server("left", "0", v1alpha1.ServerReady),
	)

	if n, err := testutil.GatherAndCount(c.gather()); n != 0 || err != nil {
		t.Errorf("a replica that doesn't lead tells %d series, %v", n, err)
	}
	close(leads)
	want := `
# HELP dormouse_fleet_capacity Players that the ready Servers of a Fleet that doesn't sleep have room for. The leader tells.
# TYPE dormouse_fleet_capacity gauge
dormouse_fleet_capacity{fleet="empty",namespace="games"} 0
dormouse_fleet_capacity{fleet="lobbies",namespace="games"} 20
# HELP dormouse_fleet_players Players on all Servers of a Fleet that doesn't sleep, draining ones too. The leader tells.
# TYPE dormouse_fleet_players gauge
dormouse_fleet_players{fleet="empty",namespace="games"} 0
dormouse_fleet_players{fleet="lobbies",namespace="games"} 7
# HELP dormouse_fleet_servers Servers of a Fleet by their state: Ready, and each other state that any has. There are none of a Fleet that sleeps. The leader tells.
# TYPE dormouse_fleet_servers gauge
dormouse_fleet_servers{fleet="empty",namespace="games",state="Ready"} 0
dormouse_fleet_servers{fleet="lobbies",namespace="games",state="Draining"} 1
dormouse_fleet_servers{fleet="lobbies",namespace="games",state="Pending"} 1
dormouse_fleet_servers{fleet="lobbies",namespace="games",state="Ready"} 2
`
	if err := testutil.GatherAndCompare(c.gather(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
