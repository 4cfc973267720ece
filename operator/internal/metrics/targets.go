package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/operator/internal/kindwatch"
)

var targetKinds = prometheus.NewDesc("dormouse_target_kinds",
	"Kinds that ElasticServices name as their targets', besides Dormouse's own, by what became of their watch: watched; beginning; unknown to the API server; "+
		"unsuited, as one without a scale; forbidden to the operator; failed, and tried again; excess, where too many are watched. Of those that aren't watched a change of the scale shows late. "+
		"Each replica watches.",
	[]string{"state"}, nil)

// targets collects the watches of targets.
type targets struct {
	count func() map[kindwatch.State]int
}

// RegisterTargets adds how many kinds of targets are watched, and aren't.
func RegisterTargets(r prometheus.Registerer, count func() map[kindwatch.State]int) {
	r.MustRegister(targets{count})
}

// Describe implements prometheus.Collector.
func (t targets) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- targetKinds }

// Collect implements prometheus.Collector.
func (t targets) Collect(to chan<- prometheus.Metric) {
	counts := t.count()
	for _, state := range kindwatch.States {
		to <- prometheus.MustNewConstMetric(targetKinds, prometheus.GaugeValue, float64(counts[state]), string(state))
	}
}
