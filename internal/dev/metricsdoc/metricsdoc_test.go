package metricsdoc

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestEveryMetricIsListedThoughItNeverCounted(t *testing.T) {
	var w strings.Builder
	err := Write(&w, "Program", Sample(func(r prometheus.Registerer) {
		r.MustRegister(
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: "One | two."}, []string{"service", "namespace"}),
			prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "b", Help: "B."}, []string{"phase"}),
			prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "c_seconds", Help: "C."}, []string{"stage"}),
			prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "e_seconds", Help: "E."}, []string{"service"}),
			prometheus.NewGauge(prometheus.GaugeOpts{Name: "d", Help: "D."}),
		)
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n## Program\n",
		"| `a_total` | counter | `namespace`, `service` | One \\| two. |\n",
		"| `b` | gauge | `phase` | B. |\n",
		"| `c_seconds` | histogram | `stage` | C. |\n",
		"| `e_seconds` | summary | `service` | E. |\n",
		"| `d` | gauge |  | D. |\n",
	} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in:\n%s", want, w.String())
		}
	}
}
