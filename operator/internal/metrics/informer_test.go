package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"dormouse.dev/dormouse/internal/objectmetrics"
)

func TestWakesAreCountedForAsLongAsThereIsTheService(t *testing.T) {
	m, g := NewInformer(prometheus.NewRegistry()), objectmetrics.NewGatherer(prometheus.NewRegistry())
	g.Add(m)
	m.Raised("games", "lobby")
	m.Raised("games", "lobby")
	m.Raised("games", "gone")
	m.Forget("games", "gone")
	want := `
# HELP dormouse_wakes_total Times that a target was scaled up for a client.
# TYPE dormouse_wakes_total counter
dormouse_wakes_total{namespace="games",service="lobby"} 2
`
	if err := testutil.GatherAndCompare(g, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
