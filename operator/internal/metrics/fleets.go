package metrics

import (
	"context"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/objectmetrics"
)

// serverStates are all states of a Server.
var serverStates = []v1alpha1.ServerState{
	v1alpha1.ServerPending, v1alpha1.ServerStarting, v1alpha1.ServerReady, v1alpha1.ServerAllocated, v1alpha1.ServerReserved,
	v1alpha1.ServerDraining, v1alpha1.ServerStopped, v1alpha1.ServerUnhealthy,
}

var (
	fleetServers = &objectmetrics.Metric{
		Name: "dormouse_fleet_servers",
		Help: "Servers of a Fleet by their state: Ready, and each other state that any has. " +
			"There are none of a Fleet that sleeps. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"fleet", "namespace", "state"},
	}
	fleetPlayers = &objectmetrics.Metric{
		Name:   "dormouse_fleet_players",
		Help:   "Players on all Servers of a Fleet that doesn't sleep, draining ones too. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"fleet", "namespace"},
	}
	fleetCapacity = &objectmetrics.Metric{
		Name:   "dormouse_fleet_capacity",
		Help:   "Players that the ready Servers of a Fleet that doesn't sleep have room for. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"fleet", "namespace"},
	}
)

// fleets exports the Fleets and their Servers whenever metrics are collected. Only the leader
// exports them, so that each is counted once.
type fleets struct {
	all     *objects[*v1alpha1.Fleet]
	servers *objects[*v1alpha1.Server]
	leads   <-chan struct{}
}

// AddFleets adds the metrics of the Fleets in a cache. leads is closed once this replica is the
// leader.
func AddFleets(ctx context.Context, g *objectmetrics.Gatherer, informers cache.Informers, leads <-chan struct{}) error {
	all, err := watch(ctx, informers, &v1alpha1.Fleet{})
	if err != nil {
		return err
	}
	servers, err := watch(ctx, informers, &v1alpha1.Server{})
	if err != nil {
		return err
	}
	g.Add(&fleets{all, servers, leads})
	return nil
}

// Families implements objectmetrics.Collector. A Fleet that wants no Servers and has none has no
// series: there may be thousands of them.
func (f *fleets) Families() []*objectmetrics.Family {
	if !closed(f.leads) {
		return nil
	}
	servers, players, capacity := fleetServers.Family(), fleetPlayers.Family(), fleetCapacity.Family()
	states := f.states()
	f.all.each(func(fleet *v1alpha1.Fleet) {
		its := states[fleet.UID]
		if len(its) == 0 && ptr.Deref(fleet.Spec.Replicas, 1) == 0 {
			return
		}
		for i := range serverStates {
			state := &serverStates[i]
			if n := its[*state]; n > 0 || *state == v1alpha1.ServerReady {
				servers.Gauge(float64(n), &fleet.Name, &fleet.Namespace, (*string)(state))
			}
		}
		players.Gauge(float64(fleet.Status.Players), &fleet.Name, &fleet.Namespace)
		capacity.Gauge(float64(fleet.Status.Capacity), &fleet.Name, &fleet.Namespace)
	})
	return []*objectmetrics.Family{servers, players, capacity}
}

// states counts the Servers by their owner and state.
func (f *fleets) states() map[types.UID]map[v1alpha1.ServerState]int {
	counts := map[types.UID]map[v1alpha1.ServerState]int{}
	f.servers.each(func(server *v1alpha1.Server) {
		owner := metav1.GetControllerOfNoCopy(server)
		if owner == nil {
			return
		}
		if counts[owner.UID] == nil {
			counts[owner.UID] = map[v1alpha1.ServerState]int{}
		}
		state := server.Status.State
		if state == "" {
			state = v1alpha1.ServerPending // nobody has looked at it yet
		}
		counts[owner.UID][state]++
	})
	return counts
}
