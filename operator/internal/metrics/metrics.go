// Package metrics has the operator's metrics. Every method works on a nil receiver, so that
// tests need no registry.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/internal/objectmetrics"
)

// Controller counts what the ElasticService controller does, of all services together: the status
// of each has its own last wake.
type Controller struct {
	phases *prometheus.CounterVec
	wakes  *prometheus.HistogramVec
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
			Help: "Times that an ElasticService came into a phase, of all of them.",
		}, []string{"phase"}),
		wakes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dormouse_wake_seconds",
			Help: "Time of a wake from zero replicas, for a client or because the service is to be kept awake, by stage, of all services. Kubernetes tells to a whole second when a pod was " +
				"scheduled and started, so these three stages are exact in their sum only; none is below 0.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120, 300},
		}, []string{"stage"}),
	}
	reg.MustRegister(m.phases, m.wakes)
	return m
}

// PhaseChanged counts a change of phase.
func (m *Controller) PhaseChanged(phase string) {
	if m != nil {
		m.phases.WithLabelValues(phase).Inc()
	}
}

// WakeTook observes how long a stage of a wake took. The stages are measured for all services
// together, because each service would have a hundred series.
func (m *Controller) WakeTook(stage Stage, took time.Duration) {
	if m != nil {
		m.wakes.WithLabelValues(string(stage)).Observe(max(took, 0).Seconds())
	}
}

// PutOff is why a wake's callers were told to call again before its turn came.
type PutOff string

// Reasons for which wakes are put off.
const (
	// QueueFull is where too many wakes waited for their turn, in all or of one namespace.
	QueueFull PutOff = "queue_full"
	// TurnLate is where the turn didn't come in time.
	TurnLate PutOff = "turn_late"
)

// Informer counts what the wake endpoint does.
type Informer struct {
	calls    *prometheus.CounterVec
	putOff   *prometheus.CounterVec
	duration prometheus.Histogram

	mu sync.Mutex
	// raised is how often the target of each Service was scaled up.
	raised map[types.NamespacedName]int64
}

var wakesMetric = &objectmetrics.Metric{
	Name:   "dormouse_wakes_total",
	Help:   "Times that a target was scaled up for a client.",
	Type:   dto.MetricType_COUNTER,
	Labels: []string{"namespace", "service"},
}

// NewInformer registers the wake endpoint's metrics. Those of each Service are its Families.
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
		putOff: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_wakes_put_off_total",
			Help: "Wakes that had no turn at the API server, and whose callers were told to call again: too many waited (queue_full), or the turn didn't come within 5 seconds (turn_late).",
		}, []string{"reason"}),
		raised: map[types.NamespacedName]int64{},
	}
	reg.MustRegister(m.calls, m.putOff, m.duration)
	// Codes that alerts use begin at zero, so that the first one counts.
	for _, code := range []string{"202", "400", "401", "404", "503"} {
		m.calls.WithLabelValues(code)
	}
	for _, reason := range []PutOff{QueueFull, TurnLate} {
		m.putOff.WithLabelValues(string(reason))
	}
	return m
}

// Families implements objectmetrics.Collector.
func (m *Informer) Families() []*objectmetrics.Family {
	wakes := wakesMetric.Family()
	m.mu.Lock()
	defer m.mu.Unlock()
	for of, n := range m.raised {
		wakes.Counter(float64(n), &of.Namespace, &of.Name)
	}
	return []*objectmetrics.Family{wakes}
}

// Answered counts an answer to a wake call.
func (m *Informer) Answered(code string, took time.Duration) {
	if m != nil {
		m.calls.WithLabelValues(code).Inc()
		m.duration.Observe(took.Seconds())
	}
}

// PutOff counts a wake that didn't get its turn.
func (m *Informer) PutOff(reason PutOff) {
	if m != nil {
		m.putOff.WithLabelValues(string(reason)).Inc()
	}
}

// Raised counts a target that was scaled up.
func (m *Informer) Raised(namespace, service string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raised[types.NamespacedName{Namespace: namespace, Name: service}]++
}

// Forget drops the series of a Service that has no ElasticService any more.
func (m *Informer) Forget(namespace, service string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.raised, types.NamespacedName{Namespace: namespace, Name: service})
}
