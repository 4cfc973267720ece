package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestEachControllersBacklogIsToldAsItIs(t *testing.T) {
	t.Parallel()
	registry, waiting := prometheus.NewRegistry(), 0
	RegisterBacklog(registry, "elasticservice", func() int { return waiting })
	RegisterBacklog(registry, "server", func() int { return 2 })
	waiting = 10_000
	want := `
dormouse_backlog_passes{controller="elasticservice"} 10000
dormouse_backlog_passes{controller="server"} 2
`
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families, %v; want one", len(families), err)
	}
	header := "\n# HELP dormouse_backlog_passes " + families[0].GetHelp() + "\n# TYPE dormouse_backlog_passes gauge"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(header+want)); err != nil {
		t.Error(err)
	}
}
