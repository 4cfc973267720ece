package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"dormouse.dev/dormouse/internal/dev/metricsdoc"
	"dormouse.dev/dormouse/sidecar/internal/files"
)

func TestMetricsAreNamedAsPrometheusWantsThem(t *testing.T) {
	for _, registers := range []func(prometheus.Registerer){register, files.RegisterMetrics} {
		problems, err := testutil.GatherAndLint(metricsdoc.Sample(registers))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestThePageHasTheMetricsOfEachProgram(t *testing.T) {
	var page strings.Builder
	if err := write(&page); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dormouse_sidecar_players", "dormouse_files_refusals_total", "dormouse_files_logins_total", "dormouse_files_bytes_total", "dormouse_files_sessions"} {
		if !strings.Contains(page.String(), "| `"+name+"` |") {
			t.Errorf("there is no %s in\n%s", name, page.String())
		}
	}
}
