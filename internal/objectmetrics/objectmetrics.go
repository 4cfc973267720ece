// Package objectmetrics has metrics with series of each of thousands of objects. A registry of
// Prometheus takes each series apart, compares it with all others and sorts them at every scrape,
// which takes several times as long as to write them. Here whoever has the objects makes all of
// their series at once, and has to see to it that no two of them have the same labels.
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
	g.mu.Lock()
	collectors := slices.Clone(g.collectors)
	g.mu.Unlock()
	for _, c := range collectors {
		for _, made := range c.Families() {
			if len(made.family.GetMetric()) > 0 {
				families = append(families, &made.family)
			}
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// Metric is what a metric is.
type Metric struct {
	Name, Help string
	Type       dto.MetricType
	// Labels are the names of the labels of each series.
	Labels []string
}

// Family makes the series of a metric for one scrape.
func (m *Metric) Family() *Family {
	return &Family{of: m, family: dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &m.Type}}
}

// Family is a metric with its series. It takes few allocations however many there are.
type Family struct {
	of        *Metric
	family    dto.MetricFamily
	metrics   slab[dto.Metric]
	pairs     slab[dto.LabelPair]
	lists     slab[*dto.LabelPair]
	gauges    slab[dto.Gauge]
	counters  slab[dto.Counter]
	summaries slab[dto.Summary]
	values    slab[float64]
	counts    slab[uint64]
}

// Gauge adds a series of a gauge. The labels have as many values as the metric has labels, which
// must not change any more.
func (f *Family) Gauge(value float64, labels ...*string) {
	gauge := f.gauges.one()
	gauge.Value = f.value(value)
	f.add(labels).Gauge = gauge
}

// Counter adds a series of a counter, as Gauge does.
func (f *Family) Counter(value float64, labels ...*string) {
	counter := f.counters.one()
	counter.Value = f.value(value)
	f.add(labels).Counter = counter
}

// Summary adds a series of a summary without quantiles, as Gauge does.
func (f *Family) Summary(count uint64, sum float64, labels ...*string) {
	summary, n := f.summaries.one(), f.counts.one()
	*n = count
	summary.SampleCount, summary.SampleSum = n, f.value(sum)
	f.add(labels).Summary = summary
}

func (f *Family) value(value float64) *float64 {
	v := f.values.one()
	*v = value
	return v
}

func (f *Family) add(labels []*string) *dto.Metric {
	m := f.metrics.one()
	m.Label = f.lists.some(len(labels))
	for i, value := range labels {
		pair := f.pairs.one()
		pair.Name, pair.Value = &f.of.Labels[i], value
		m.Label[i] = pair
	}
	f.family.Metric = append(f.family.Metric, m)
	return m
}

// slab makes values many at a time.
type slab[T any] []T

// slabSize is how many values a slab makes at a time.
const slabSize = 512

func (s *slab[T]) one() *T { return &s.some(1)[0] }

// some makes n values, at most slabSize.
func (s *slab[T]) some(n int) []T {
	if len(*s) < n {
		*s = make([]T, slabSize)
	}
	some := (*s)[:n:n]
	*s = (*s)[n:]
	return some
}
