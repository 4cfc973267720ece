// Package metrics owns the sidecar's metrics. They are about one Server and need no labels for
// it.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/sidecar/internal/game"
)

// ReportOutcome is the outcome of a report.
type ReportOutcome string

// Outcomes of reports.
const (
	ReportAnswered ReportOutcome = "answered"
	// ReportReplaced is a report that a newer one replaced.
	ReportReplaced ReportOutcome = "replaced"
	// ReportRefused is a report that the operator answered with an error.
	ReportRefused ReportOutcome = "refused"
	// ReportFailed is a report that had no answer.
	ReportFailed ReportOutcome = "failed"
)

// Metrics are all of them. A nil Metrics counts nothing.
type Metrics struct {
	reports, probes *prometheus.CounterVec
}

// New registers the metrics; now returns the state of the game.
func New(registry prometheus.Registerer, now func() game.Snapshot) *Metrics {
	outcome := []string{"outcome"}
	m := &Metrics{
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_sidecar_reports_total", Help: "Reports to the operator, by outcome: answered, replaced, refused or failed.",
		}, outcome),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_sidecar_probes_total", Help: "Probes of the game, by outcome: answered or failed.",
		}, outcome),
	}
	gauge := func(name, help string, value func(game.Snapshot) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(now()) })
	}
	registry.MustRegister(m.reports, m.probes,
		gauge("dormouse_sidecar_players", "Players on the server; 0 while nobody has said.", func(s game.Snapshot) float64 {
			if s.Game.Players == nil {
				return 0
			}
			return float64(s.Game.Players.Current)
		}),
		gauge("dormouse_sidecar_capacity", "Players that the server takes; 0 while that isn't known.", func(s game.Snapshot) float64 {
			return float64(s.Capacity)
		}),
		gauge("dormouse_sidecar_deletion_allowed", "1 while the Server may be deleted, and else 0.", func(s game.Snapshot) float64 {
			if s.DeletionAllowed {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "dormouse_sidecar_game_restarts_total", Help: "Times that the game's container started again beside this sidecar.",
		}, func() float64 { return float64(now().Restarts) }),
	)
	return m
}

// Reported counts a report.
func (m *Metrics) Reported(outcome ReportOutcome) {
	if m != nil {
		m.reports.WithLabelValues(string(outcome)).Inc()
	}
}

// Probed counts a probe.
func (m *Metrics) Probed(answered bool) {
	if m == nil {
		return
	}
	outcome := "failed"
	if answered {
		outcome = "answered"
	}
	m.probes.WithLabelValues(outcome).Inc()
}
