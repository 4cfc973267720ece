package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// Autoscalers counts what GameAutoscalers do.
type Autoscalers struct {
	scales *prometheus.CounterVec
}

// NewAutoscalers registers the metrics of the GameAutoscalers in a cache. leads is closed once this
// replica is the leader.
func NewAutoscalers(reg prometheus.Registerer, reader client.Reader, leads <-chan struct{}) *Autoscalers {
	m := &Autoscalers{scales: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dormouse_autoscaler_scales_total",
		Help: "Changes of replicas by GameAutoscalers, by their direction: up, down, or wake from zero.",
	}, []string{"direction"})}
	for _, direction := range []string{"up", "down", "wake"} {
		m.scales.WithLabelValues(direction)
	}
	labels := []string{"namespace", "name"}
	reg.MustRegister(m.scales, &autoscalers{
		reader: reader,
		leads:  leads,
		replicas: prometheus.NewDesc("dormouse_autoscaler_replicas",
			"Servers of a GameAutoscaler's target that are there (current) and that it wants (desired). The leader tells.", append(labels, "which"), nil),
		active: prometheus.NewDesc("dormouse_autoscaler_active",
			"1 where a GameAutoscaler decides about its target, 0 where it rests or can't, with the reason. The leader tells.", append(labels, "reason"), nil),
	})
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

// autoscalers exports the GameAutoscalers' statuses whenever metrics are collected. Only the leader
// exports them, so that each is counted once.
type autoscalers struct {
	reader           client.Reader
	leads            <-chan struct{}
	replicas, active *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (a *autoscalers) Describe(descs chan<- *prometheus.Desc) {
	descs <- a.replicas
	descs <- a.active
}

// Collect implements prometheus.Collector.
func (a *autoscalers) Collect(out chan<- prometheus.Metric) {
	select {
	case <-a.leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list v1alpha1.GameAutoscalerList
	if err := a.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(a.replicas, err)
		return
	}
	for i := range list.Items {
		gas := &list.Items[i]
		s := &gas.Status
		gauge := func(desc *prometheus.Desc, value float64, label string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, gas.Namespace, gas.Name, label)
		}
		gauge(a.replicas, float64(s.CurrentReplicas), "current")
		gauge(a.replicas, float64(s.DesiredReplicas), "desired")
		if c := meta.FindStatusCondition(s.Conditions, conditions.Active); c != nil {
			active := 0.0
			if c.Status == metav1.ConditionTrue {
				active = 1
			}
			gauge(a.active, active, c.Reason)
		}
	}
}
