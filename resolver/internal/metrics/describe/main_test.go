package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"dormouse.dev/dormouse/internal/dev/metricsdoc"
)

func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	problems, err := testutil.GatherAndLint(gather())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestNoHistogramIsOfAnObject(t *testing.T) {
	grows, err := metricsdoc.GrowingHistograms(gather())
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range grows {
		t.Errorf("%s: each object would have a series for each bucket", label)
	}
}
