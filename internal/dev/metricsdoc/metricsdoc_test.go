package metricsdoc

import (
	"slices"
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

func TestHistogramsThatGrowWithObjectsAreFound(t *testing.T) {
	got, err := GrowingHistograms(Sample(func(r prometheus.Registerer) {
		quantiles := map[float64]float64{.5: .05}
		r.MustRegister(
			prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "a_seconds", Help: "A."}, []string{"service", "stage"}),
			prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "b_seconds", Help: "B."}, []string{"stage"}),
			prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "c_seconds", Help: "C.", Objectives: quantiles}, []string{"name"}),
			prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "d_seconds", Help: "D."}, []string{"name"}),
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: "e_total", Help: "E."}, []string{"name"}),
			prometheus.NewHistogram(prometheus.HistogramOpts{Name: "f_seconds", Help: "F."}),
		)
	}))
	if want := []string{"a_seconds{service}", "c_seconds{name}"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
