package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/outbound"
)

// Triggers counts the answers to idle triggers, of all services together: the condition
// TriggersHealthy of each has its own failure.
type Triggers struct {
	answers *prometheus.CounterVec
}

// NewTriggers registers the metrics of triggers, with a series of each result.
func NewTriggers(reg prometheus.Registerer) *Triggers {
	m := &Triggers{answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dormouse_trigger_answers_total",
		Help: "Answers to idle triggers, by the trigger's type and result: ok, or why there is no number. Of the type http each pod's answer counts, " +
			"and of prometheus each reading, of which those of equal queries share an answer.",
	}, []string{"type", "result"})}
	reg.MustRegister(m.answers)
	for _, of := range []v1alpha1.TriggerType{v1alpha1.TriggerHTTP, v1alpha1.TriggerPrometheus} {
		m.answers.WithLabelValues(string(of), "ok")
		for _, reason := range outbound.Reasons {
			m.answers.WithLabelValues(string(of), string(reason))
		}
	}
	return m
}

// Answered counts a number that was read.
func (m *Triggers) Answered(of v1alpha1.TriggerType) {
	if m != nil {
		m.answers.WithLabelValues(string(of), "ok").Inc()
	}
}

// Failed counts a number that could not be read.
func (m *Triggers) Failed(of v1alpha1.TriggerType, reason outbound.Reason) {
	if m != nil {
		m.answers.WithLabelValues(string(of), string(reason)).Inc()
	}
}
