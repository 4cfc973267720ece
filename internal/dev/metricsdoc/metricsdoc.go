// Package metricsdoc writes down what a program measures, from the metrics that
// it registers.
package metricsdoc

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// maxLabels is more than any metric has.
const maxLabels = 8

// Sample gives a registry with at least one series of each metric that register
// registers: a metric with labels shows only once it has counted.
func Sample(register func(prometheus.Registerer)) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	register(sampler{registry})
	return registry
}

// sampler registers, and makes a series.
type sampler struct{ *prometheus.Registry }

// MustRegister implements prometheus.Registerer.
func (s sampler) MustRegister(collectors ...prometheus.Collector) {
	s.Registry.MustRegister(collectors...)
	for _, c := range collectors {
		switch vec := c.(type) {
		case *prometheus.CounterVec:
			sample(vec.GetMetricWithLabelValues)
		case *prometheus.GaugeVec:
			sample(vec.GetMetricWithLabelValues)
		case *prometheus.HistogramVec:
			sample(vec.GetMetricWithLabelValues)
		case *prometheus.SummaryVec:
			sample(vec.GetMetricWithLabelValues)
		}
	}
}

// sample makes a series with as many labels as the metric has.
func sample[M any](get func(...string) (M, error)) {
	for n := range maxLabels {
		if _, err := get(make([]string, n)...); err == nil {
			return
		}
	}
}

// Write writes a table of a program's metrics, as Markdown.
func Write(w io.Writer, program string, gatherer prometheus.Gatherer) error {
	families, err := gatherer.Gather()
	if err != nil {
		return fmt.Errorf("gather the metrics of the %s: %w", program, err)
	}
	fmt.Fprintf(w, "\n## %s\n\n| metric | type | labels | |\n|---|---|---|---|\n", program)
	for _, family := range families {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()),
			labels(family), strings.ReplaceAll(family.GetHelp(), "|", "\\|"))
	}
	return nil
}

func labels(family *dto.MetricFamily) string {
	var names []string
	for _, l := range family.GetMetric()[0].GetLabel() {
		names = append(names, "`"+l.GetName()+"`")
	}
	return strings.Join(names, ", ")
}

// bounded are the labels with few values, however many objects there are.
var bounded = []string{"code", "direction", "outcome", "protocol", "reason", "stage"}

// GrowingHistograms returns the labels of histograms that may have any number of values, each after
// the name of its metric. A summary counts as one where it has quantiles.
func GrowingHistograms(gatherer prometheus.Gatherer) ([]string, error) {
	families, err := gatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather the metrics: %w", err)
	}
	var grow []string
	for _, family := range families {
		one := family.GetMetric()[0]
		if one.GetHistogram() == nil && len(one.GetSummary().GetQuantile()) == 0 {
			continue
		}
		for _, l := range one.GetLabel() {
			if !slices.Contains(bounded, l.GetName()) {
				grow = append(grow, family.GetName()+"{"+l.GetName()+"}")
			}
		}
	}
	return grow, nil
}
