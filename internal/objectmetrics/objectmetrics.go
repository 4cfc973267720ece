// Package objectmetrics has metrics with series of each of thousands of objects. A registry of
// Prometheus takes each series apart, compares it with all others and sorts them at every scrape,
// which takes several times as long as to write them. Here whoever has the objects makes all of
// their series at once, and has to see to it that no two of them have the same labels. They are
// written a few at a time, so that a scrape leaves little garbage.
package objectmetrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Collector makes the series of some metrics, at each scrape, and perhaps of several scrapes at a
// time.
type Collector interface{ Families() []*Family }

// Gatherer has the metrics of a registry, and those of objects.
type Gatherer struct {
	registry prometheus.Gatherer

	mu         sync.Mutex
	collectors []Collector
}

// NewGatherer makes a Gatherer of a registry's metrics.
func NewGatherer(registry prometheus.Gatherer) *Gatherer { return &Gatherer{registry: registry} }

// Add adds the metrics of objects. None may have the name of another one.
func (g *Gatherer) Add(c Collector) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.collectors = append(g.collectors, c)
}

// Gather implements prometheus.Gatherer. The series of an object's metric come in any order, which
// the text format allows where sorting takes too long.
func (g *Gatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.registry.Gather()
	for _, f := range g.objects() {
		f.parts(len(f.values), func(part *dto.MetricFamily) { families = append(families, part) })
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// objects are the metrics of objects that have a series.
func (g *Gatherer) objects() (families []*Family) {
	g.mu.Lock()
	collectors := slices.Clone(g.collectors)
	g.mu.Unlock()
	for _, c := range collectors {
		for _, f := range c.Families() {
			f.of.last.Store(int64(len(f.values)))
			if len(f.values) > 0 {
				families = append(families, f)
			}
		}
	}
	return families
}
