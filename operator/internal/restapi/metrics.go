package restapi

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/operator/internal/restapi/access"
)

// Metrics are the API's.
type Metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	refuse  *prometheus.CounterVec
	open    *prometheus.GaugeVec
	closed  *prometheus.CounterVec
}

// NewMetrics registers the API's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_api_calls_total", Help: "Calls of the REST API by operation and HTTP status.",
		}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dormouse_api_call_seconds", Help: "How long calls of the REST API took by operation, in seconds. Waiting for a server and streams count, too.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2.5, 12),
		}, []string{"operation"}),
		refuse: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_api_refused_total", Help: "Calls of the REST API that were refused because of a bound: rate (of a user), unknown_tokens (to be looked at, of an address or of all), streams and waiting (open at once).",
		}, []string{"reason"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dormouse_api_open_calls", Help: "Calls of the REST API that stay open: streams (of logs and events), waiting (for a Server).",
		}, []string{"what"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_api_closed_connections_total", Help: "Connections to the REST API that were closed because there were too many, in all (too_many) or of one address (too_many_of_caller), or because callers without a good token had sent too much that wasn't answered yet (too_much_unanswered).",
		}, []string{"reason"}),
	}
	if r != nil {
		r.MustRegister(m.calls, m.seconds, m.refuse, m.open, m.closed)
	}
	return m
}

func (m *Metrics) called(operation string, status int, took time.Duration) {
	m.calls.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}

func (m *Metrics) opened(what string, change float64) { m.open.WithLabelValues(what).Add(change) }

func (m *Metrics) refused(reason string) { m.refuse.WithLabelValues(reason).Inc() }

// askedWho counts a token that wasn't looked at; err is what came of asking whose it is.
func (m *Metrics) askedWho(err error) {
	if errors.Is(err, access.ErrBusy) {
		m.refused("unknown_tokens")
	}
}
