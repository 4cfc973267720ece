package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"dormouse.dev/dormouse/internal/dev/metricsdoc"
)

func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	problems, err := testutil.GatherAndLint(metricsdoc.Sample(register))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
