package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"dormouse.dev/dormouse/internal/objectmetrics"
)

// register makes the metrics, and what gathers them: sorted, and with an error where something is
// there twice.
func register() (*Metrics, prometheus.Gatherer) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	g := objectmetrics.NewGatherer(registry)
	g.Add(m)
	return m, prometheus.Gatherers{g}
}

func gather(t *testing.T, g prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// lines is how many a scrape has, but for those that say what a metric is.
func lines(families []*dto.MetricFamily) (n int) {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch {
			case m.GetHistogram() != nil:
				n += len(m.GetHistogram().GetBucket()) + 3
			case m.GetSummary() != nil:
				n += 2
			default:
				n++
			}
		}
	}
	return n
}

var stagesOfAWake = []Stage{StageAsked, StageAddress, StageUp, StageDelivered, StageTotal}

// wake has a service's port do what each does that ever woke.
func wake(m *Metrics, service string) *Port {
	p := m.Port("games", service, "minecraft")
	p.ClientTaken()
	p.HeldBegun()
	m.WakeCalled("games", service, "accepted")
	for _, stage := range stagesOfAWake {
		p.Took(stage, time.Second)
	}
	p.HeldEnded()
	p.SessionBegun()
	p.BytesToServer(1)
	p.BytesToClient(1)
	p.SessionEnded()
	p.Ended("client")
	return p
}

// Services that ever woke have few series each.
func TestAServiceHasFewSeries(t *testing.T) {
	t.Parallel()
	const services, each = 200, 4
	m, gatherer := register()
	wake(m, "first")
	before := lines(gather(t, gatherer))
	for i := range services {
		wake(m, fmt.Sprintf("service-%d", i))
	}
	if got := lines(gather(t, gatherer)) - before; got > services*each {
		t.Errorf("%d lines of %d services, want %d at most", got, services, services*each)
	}
}

// The series of a service that is gone are gone for good, whatever its last clients do.
func TestSeriesDontComeBack(t *testing.T) {
	t.Parallel()
	m, gatherer := register()
	wake(m, "stays").Ended("idle")
	before := lines(gather(t, gatherer))
	for i := range 10 {
		name := fmt.Sprintf("ci-%d", i)
		p, silent := wake(m, name), m.Port("games", name, "minecraft")
		m.Forget("games", name)
		for _, late := range []*Port{p, silent} {
			late.Refused("unfinished")
			late.SessionBegun()
			late.SessionEnded()
			late.Ended("idle")
			late.SessionCutShort()
			late.DatagramDropped()
			late.Took(StageTotal, time.Second)
		}
		m.WakeCalled("games", name, "accepted")
	}
	if got := lines(gather(t, gatherer)); got != before {
		t.Errorf("%d lines after ten services came and went, and %d before", got, before)
	}
	if len(m.services) != 1 {
		t.Errorf("%d services are remembered", len(m.services))
	}
	// One by the same name is another one.
	wake(m, "ci-0").Refused("unfinished")
	if got := lines(gather(t, gatherer)); got <= before {
		t.Error("a new service by the name of an old one has no series")
	}
}
