package metrics

import "github.com/prometheus/client_golang/prometheus"

// Evictions counts the evictions that the API server asked about.
type Evictions struct{ reviews *prometheus.CounterVec }

// What came of an eviction.
const (
	EvictionAllowed    = "allowed"
	EvictionDenied     = "denied"
	EvictionUnanswered = "unanswered"
)

// NewEvictions registers the metric.
func NewEvictions(reg prometheus.Registerer) *Evictions {
	m := &Evictions{reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dormouse_eviction_reviews_total",
		Help: "Evictions of Servers' Pods by the webhook's answer: allowed or denied by what the sidecar said, denied also where the Pod's deletion wasn't allowed before, or unanswered, where the sidecar didn't say in time, which leaves it to the budget.",
	}, []string{"answer"})}
	reg.MustRegister(m.reviews)
	for _, answer := range []string{EvictionAllowed, EvictionDenied, EvictionUnanswered} {
		m.reviews.WithLabelValues(answer)
	}
	return m
}

// Reviewed counts one.
func (m *Evictions) Reviewed(answer string) {
	if m != nil {
		m.reviews.WithLabelValues(answer).Inc()
	}
}
