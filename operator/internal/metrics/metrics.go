// Package metrics holds what the operator counts. Every method works on a nil
// receiver, so that tests need no registry.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Controller counts what the ElasticService controller does.
type Controller struct {
	phases *prometheus.CounterVec
}

// NewController registers the controller's metrics.
func NewController(reg prometheus.Registerer) *Controller {
	m := &Controller{phases: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dormouse_phase_transitions_total",
		Help: "Times that an ElasticService came into a phase.",
	}, []string{"namespace", "name", "phase"})}
	reg.MustRegister(m.phases)
	return m
}

// PhaseChanged counts a change of phase.
func (m *Controller) PhaseChanged(namespace, name, phase string) {
	if m != nil {
		m.phases.WithLabelValues(namespace, name, phase).Inc()
	}
}

// Forget drops the series of an ElasticService that is gone.
func (m *Controller) Forget(namespace, name string) {
	if m != nil {
		m.phases.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "name": name})
	}
}

// Informer counts what the wake endpoint does.
type Informer struct {
	calls    *prometheus.CounterVec
	duration prometheus.Histogram
	raised   *prometheus.CounterVec
}

// NewInformer registers the wake endpoint's metrics.
func NewInformer(reg prometheus.Registerer) *Informer {
	m := &Informer{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_wake_calls_total",
			Help: "Wake calls by the HTTP status code of the answer.",
		}, []string{"code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "dormouse_wake_call_duration_seconds",
			Help:    "Time to answer a wake call.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		raised: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_wakes_total",
			Help: "Times that a target was scaled up for a client.",
		}, []string{"namespace", "service"}),
	}
	reg.MustRegister(m.calls, m.duration, m.raised)
	return m
}

// Answered counts an answer to a wake call.
func (m *Informer) Answered(code string, took time.Duration) {
	if m != nil {
		m.calls.WithLabelValues(code).Inc()
		m.duration.Observe(took.Seconds())
	}
}

// Raised counts a target that was scaled up.
func (m *Informer) Raised(namespace, service string) {
	if m != nil {
		m.raised.WithLabelValues(namespace, service).Inc()
	}
}

// Forget drops the series of a Service that has no ElasticService any more.
func (m *Informer) Forget(namespace, service string) {
	if m != nil {
		m.raised.DeleteLabelValues(namespace, service)
	}
}
