package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Allocations counts what became of Allocations.
type Allocations struct {
	results *prometheus.CounterVec
	pending prometheus.Gauge
	seconds prometheus.Histogram
}

// NewAllocations registers the metrics.
func NewAllocations(reg prometheus.Registerer) *Allocations {
	m := &Allocations{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_allocations_total",
			Help: "Allocations by result: allocated, refused for want of a Server, or expired because the time was over or the Server gone. The leader counts.",
		}, []string{"result"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dormouse_allocations_pending",
			Help: "Allocations that wait for a Server. The leader tells.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "dormouse_allocation_seconds",
			Help:    "Time from when an Allocation was first seen until its Server was written into its status. The leader measures.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	for _, result := range []string{"allocated", "refused", "expired"} {
		m.results.WithLabelValues(result)
	}
	reg.MustRegister(m.results, m.pending, m.seconds)
	return m
}

// Allocated counts one that has got a Server, and how long that took.
func (m *Allocations) Allocated(took time.Duration) {
	if m != nil {
		m.results.WithLabelValues("allocated").Inc()
		m.seconds.Observe(took.Seconds())
	}
}

// Refused counts one that got none.
func (m *Allocations) Refused() {
	if m != nil {
		m.results.WithLabelValues("refused").Inc()
	}
}

// Expired counts one that has a Server no more.
func (m *Allocations) Expired() {
	if m != nil {
		m.results.WithLabelValues("expired").Inc()
	}
}

// Pending tells how many wait.
func (m *Allocations) Pending(n int) {
	if m != nil {
		m.pending.Set(float64(n))
	}
}
