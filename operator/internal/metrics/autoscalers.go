package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/objectmetrics"
)

// Autoscalers counts what GameAutoscalers do.
type Autoscalers struct {
	scales *prometheus.CounterVec
}

// NewAutoscalers registers the metric of all GameAutoscalers together.
func NewAutoscalers(reg prometheus.Registerer) *Autoscalers {
	m := &Autoscalers{scales: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dormouse_autoscaler_scales_total",
		Help: "Changes of replicas by GameAutoscalers, by their direction: up, down, or wake from zero.",
	}, []string{"direction"})}
	for _, direction := range []string{"up", "down", "wake"} {
		m.scales.WithLabelValues(direction)
	}
	reg.MustRegister(m.scales)
	return m
}

// Scaled counts a change of replicas.
func (m *Autoscalers) Scaled(from, to int32) {
	if m == nil {
		return
	}
	direction := "up"
	switch {
	case from == 0:
		direction = "wake"
	case to < from:
		direction = "down"
	}
	m.scales.WithLabelValues(direction).Inc()
}

var (
	autoscalerReplicas = &objectmetrics.Metric{
		Name:   "dormouse_autoscaler_replicas",
		Help:   "Servers of a GameAutoscaler's target that are there (current) and that it wants (desired), where either isn't 0. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"name", "namespace", "which"},
	}
	autoscalerActive = &objectmetrics.Metric{
		Name:   "dormouse_autoscaler_active",
		Help:   "1 where a GameAutoscaler decides about its target, 0 where it rests or can't, with the reason. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"name", "namespace", "reason"},
	}
)

// autoscalers exports the GameAutoscalers' statuses whenever metrics are collected. Only the leader
// exports them, so that each is counted once.
type autoscalers struct {
	all   *objects[*v1alpha1.GameAutoscaler]
	leads <-chan struct{}
}

// AddAutoscalers adds the metrics of the GameAutoscalers in a cache. leads is closed once this
// replica is the leader.
func AddAutoscalers(ctx context.Context, g *objectmetrics.Gatherer, informers cache.Informers, leads <-chan struct{}) error {
	all, err := watch(ctx, informers, &v1alpha1.GameAutoscaler{})
	if err != nil {
		return err
	}
	g.Add(&autoscalers{all, leads})
	return nil
}

// Families implements objectmetrics.Collector.
func (a *autoscalers) Families() []*objectmetrics.Family {
	if !closed(a.leads) {
		return nil
	}
	replicas, active := autoscalerReplicas.Family(), autoscalerActive.Family()
	current, desired := "current", "desired"
	a.all.each(func(gas *v1alpha1.GameAutoscaler) {
		s := &gas.Status
		if s.CurrentReplicas != 0 || s.DesiredReplicas != 0 {
			replicas.Gauge(float64(s.CurrentReplicas), &gas.Name, &gas.Namespace, &current)
			replicas.Gauge(float64(s.DesiredReplicas), &gas.Name, &gas.Namespace, &desired)
		}
		if c := meta.FindStatusCondition(s.Conditions, conditions.Active); c != nil {
			value := 0.0
			if c.Status == metav1.ConditionTrue {
				value = 1
			}
			active.Gauge(value, &gas.Name, &gas.Namespace, &c.Reason)
		}
	})
	return []*objectmetrics.Family{replicas, active}
}
