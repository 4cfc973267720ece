package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// serverStates are all states of a Server.
var serverStates = []v1alpha1.ServerState{
	v1alpha1.ServerPending, v1alpha1.ServerStarting, v1alpha1.ServerReady, v1alpha1.ServerAllocated, v1alpha1.ServerReserved,
	v1alpha1.ServerDraining, v1alpha1.ServerStopped, v1alpha1.ServerUnhealthy,
}

// fleets exports the Fleets and their Servers whenever metrics are collected. Only the leader
// exports them, so that each is counted once.
type fleets struct {
	reader                     client.Reader
	leads                      <-chan struct{}
	servers, players, capacity *prometheus.Desc
}

// NewFleets registers the metrics of the Fleets in a cache. leads is closed once
// this replica is the leader.
func NewFleets(reg prometheus.Registerer, reader client.Reader, leads <-chan struct{}) {
	labels := []string{"namespace", "fleet"}
	reg.MustRegister(&fleets{
		reader:   reader,
		leads:    leads,
		servers:  prometheus.NewDesc("dormouse_fleet_servers", "Servers of a Fleet by their state. The leader tells.", append(labels, "state"), nil),
		players:  prometheus.NewDesc("dormouse_fleet_players", "Players on all Servers of a Fleet, draining ones too. The leader tells.", labels, nil),
		capacity: prometheus.NewDesc("dormouse_fleet_capacity", "Players that the ready Servers of a Fleet have room for. The leader tells.", labels, nil),
	})
}

// Describe implements prometheus.Collector.
func (f *fleets) Describe(descs chan<- *prometheus.Desc) {
	descs <- f.servers
	descs <- f.players
	descs <- f.capacity
}

// Collect implements prometheus.Collector.
func (f *fleets) Collect(out chan<- prometheus.Metric) {
	select {
	case <-f.leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	states, err := f.states(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(f.servers, err)
		return
	}
	var list v1alpha1.FleetList
	// They are only read.
	if err := f.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(f.servers, err)
		return
	}
	for i := range list.Items {
		fleet := &list.Items[i]
		gauge := func(desc *prometheus.Desc, value int, more ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), append([]string{fleet.Namespace, fleet.Name}, more...)...)
		}
		for _, state := range serverStates {
			gauge(f.servers, states[fleet.UID][state], string(state))
		}
		gauge(f.players, int(fleet.Status.Players))
		gauge(f.capacity, int(fleet.Status.Capacity))
	}
}

// states counts the Servers by their owner and state.
func (f *fleets) states(ctx context.Context) (map[types.UID]map[v1alpha1.ServerState]int, error) {
	var list v1alpha1.ServerList
	if err := f.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	counts := map[types.UID]map[v1alpha1.ServerState]int{}
	for i := range list.Items {
		server := &list.Items[i]
		owner := metav1.GetControllerOfNoCopy(server)
		if owner == nil {
			continue
		}
		if counts[owner.UID] == nil {
			counts[owner.UID] = map[v1alpha1.ServerState]int{}
		}
		state := server.Status.State
		if state == "" {
			state = v1alpha1.ServerPending // nobody has looked at it yet
		}
		counts[owner.UID][state]++
	}
	return counts, nil
}
