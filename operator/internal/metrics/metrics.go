// Package metrics has the operator's metrics. Every method works on a nil receiver, so that
// tests need no registry.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Controller counts what the ElasticService controller does.
type Controller struct {
	phases *prometheus.CounterVec
	wakes  *prometheus.HistogramVec
	woken  *prometheus.SummaryVec

	mu sync.Mutex
	// services are the Services of the ElasticServices that have series in woken.
	services map[[2]string]string
}

// Stage is a part of the time that a wake takes.
type Stage string

// Stages of a wake, as the operator sees them.
const (
	// StageScheduled is from the wake call until the first pod is scheduled.
	StageScheduled Stage = "scheduled"
	// StageStarted is from there to the start of its containers.
	StageStarted Stage = "started"
	// StageUp is from there until the operator saw that a server was up.
	StageUp Stage = "up"
	// StageHandedOver is from there until the Service's endpoints were written. There is none
	// with handoff Never.
	StageHandedOver Stage = "handed_over"
	// StageTotal is all of them.
	StageTotal Stage = "total"
)

// NewController registers the controller's metrics.
func NewController(reg prometheus.Registerer) *Controller {
	m := &Controller{
		phases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_phase_transitions_total",
			Help: "Times that an ElasticService came into a phase.",
		}, []string{"namespace", "name", "phase"}),
		wakes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dormouse_wake_seconds",
			Help: "Time of a wake from zero replicas for a client, by stage, of all services. Kubernetes tells to a whole second when a pod was " +
				"scheduled and started, so these three stages are exact in their sum only; none is below 0.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120, 300},
		}, []string{"stage"}),
		woken: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "dormouse_service_wake_seconds",
			Help: "Time of a wake from zero replicas for a client, and how often, of each service.",
		}, []string{"namespace", "service"}),
		services: map[[2]string]string{},
	}
	reg.MustRegister(m.phases, m.wakes, m.woken)
	return m
}

// PhaseChanged counts a change of phase.
func (m *Controller) PhaseChanged(namespace, name, phase string) {
	if m != nil {
		m.phases.WithLabelValues(namespace, name, phase).Inc()
	}
}

// WakeTook observes how long a stage of a wake of an ElasticService and its Service took. The
// stages are measured for all services together, because each service would have a hundred
// series.
func (m *Controller) WakeTook(namespace, name, service string, stage Stage, took time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakes.WithLabelValues(string(stage)).Observe(max(took, 0).Seconds())
	if stage == StageTotal {
		m.services[[2]string{namespace, name}] = service
		m.woken.WithLabelValues(namespace, service).Observe(max(took, 0).Seconds())
	}
}

// Forget drops the series of an ElasticService that is gone.
func (m *Controller) Forget(namespace, name string) {
	if m == nil {
		return
	}
	m.phases.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "name": name})
	m.mu.Lock()
	defer m.mu.Unlock()
	if service, ok := m.services[[2]string{namespace, name}]; ok {
		delete(m.services, [2]string{namespace, name})
		m.woken.DeleteLabelValues(namespace, service)
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
	// Codes that alerts use begin at zero, so that the first one counts.
	for _, code := range []string{"202", "400", "401", "404", "503"} {
		m.calls.WithLabelValues(code)
	}
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
