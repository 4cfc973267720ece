package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reports counts what the report server does.
type Reports struct {
	reports, peers *prometheus.CounterVec
	held           prometheus.Gauge
	refused        prometheus.Counter
	writes         *prometheus.CounterVec
	duration       prometheus.Histogram
}

// NewReports registers the report server's metrics.
func NewReports(reg prometheus.Registerer) *Reports {
	m := &Reports{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_reports_total",
			Help: "Reports of sidecars by the HTTP status code of the answer.",
		}, []string{"code"}),
		peers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_report_peer_calls_total",
			Help: "Questions of other operator replicas about recent reports, and looks that they asked for, by the HTTP status code of the answer.",
		}, []string{"code"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dormouse_reports_held",
			Help: "Reports that are held until there is something to tell.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dormouse_report_refusals_total",
			Help: "Reports that were sent away because this replica holds as many as it may.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_report_writes_total",
			Help: "Writes of Servers for a report, by the first of what it changed.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "dormouse_report_write_duration_seconds",
			Help:    "Time to write a Server for a report.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	reg.MustRegister(m.reports, m.peers, m.held, m.refused, m.writes, m.duration)
	// Codes that alerts use begin at zero, so that the first one counts.
	for _, code := range []string{"200", "400", "401", "403", "404", "503"} {
		m.reports.WithLabelValues(code)
	}
	return m
}

// Answered counts an answer to a report.
func (m *Reports) Answered(code string) {
	if m != nil {
		m.reports.WithLabelValues(code).Inc()
	}
}

// AnsweredPeer counts an answer to another replica.
func (m *Reports) AnsweredPeer(code string) {
	if m != nil {
		m.peers.WithLabelValues(code).Inc()
	}
}

// Held adds to the number of reports that are held; change may be negative.
func (m *Reports) Held(change int) {
	if m != nil {
		m.held.Add(float64(change))
	}
}

// Refused counts a report that was refused.
func (m *Reports) Refused() {
	if m != nil {
		m.refused.Inc()
	}
}

// Wrote observes a write of a Server because of a report.
func (m *Reports) Wrote(reason string, took time.Duration) {
	if m != nil {
		m.writes.WithLabelValues(reason).Inc()
		m.duration.Observe(took.Seconds())
	}
}
