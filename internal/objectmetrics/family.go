package objectmetrics

import (
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"
)

// Metric is what a metric is.
type Metric struct {
	Name, Help string
	Type       dto.MetricType
	// Labels are the names of the labels of each series.
	Labels []string

	// last is how many series there were at the last scrape.
	last atomic.Int64
}

// Family makes the series of a metric for one scrape. It has room for some more than at the last one: to make room
// for thousands step by step would leave more than twice as much garbage.
func (m *Metric) Family() *Family {
	size := m.last.Load()
	size += size / 8
	f := &Family{of: m, values: make([]float64, 0, size), labels: make([]*string, 0, size*int64(len(m.Labels)))}
	if m.Type == dto.MetricType_SUMMARY {
		f.counts = make([]uint64, 0, size)
	}
	return f
}

// Family is a metric with its series.
type Family struct {
	of *Metric
	// values has one for each series, counts too where they are summaries, and labels as many for each as the
	// metric has.
	values []float64
	counts []uint64
	labels []*string
}

// Gauge adds a series of a gauge. The labels have as many values as the metric has labels, which
// must not change any more.
func (f *Family) Gauge(value float64, labels ...*string) { f.add(value, labels) }

// Counter adds a series of a counter, as Gauge does.
func (f *Family) Counter(value float64, labels ...*string) { f.add(value, labels) }

// Summary adds a series of a summary without quantiles, as Gauge does.
func (f *Family) Summary(count uint64, sum float64, labels ...*string) {
	f.counts = append(f.counts, count)
	f.add(sum, labels)
}

// add adds a series. Too few labels are the caller's fault, and end here.
func (f *Family) add(value float64, labels []*string) {
	f.values = append(f.values, value)
	for i := range f.of.Labels {
		f.labels = append(f.labels, labels[i])
	}
}

// parts calls do with all series, so many at a time, each time in the same memory.
func (f *Family) parts(most int, do func(*dto.MetricFamily)) {
	most = min(most, len(f.values))
	p := &part{
		family:  dto.MetricFamily{Name: &f.of.Name, Help: &f.of.Help, Type: &f.of.Type, Metric: make([]*dto.Metric, most)},
		metrics: make([]dto.Metric, most), pairs: make([]dto.LabelPair, most*len(f.of.Labels)), lists: make([]*dto.LabelPair, most*len(f.of.Labels)),
	}
	for i := range p.lists {
		p.lists[i] = &p.pairs[i]
		p.pairs[i].Name = &f.of.Labels[i%len(f.of.Labels)]
	}
	for i := range p.metrics {
		m := &p.metrics[i]
		m.Label = p.lists[i*len(f.of.Labels) : (i+1)*len(f.of.Labels)]
		switch f.of.Type { //nolint:exhaustive // there are no others here
		case dto.MetricType_GAUGE:
			m.Gauge = &dto.Gauge{}
		case dto.MetricType_COUNTER:
			m.Counter = &dto.Counter{}
		case dto.MetricType_SUMMARY:
			m.Summary = &dto.Summary{}
		}
		p.family.Metric[i] = m
	}
	for from := 0; from < len(f.values); from += most {
		p.fill(f, from, min(most, len(f.values)-from))
		do(&p.family)
	}
}

// part is the memory for some series.
type part struct {
	family  dto.MetricFamily
	metrics []dto.Metric
	pairs   []dto.LabelPair
	lists   []*dto.LabelPair
}

// fill has so many series from one on.
func (p *part) fill(f *Family, from, count int) {
	p.family.Metric = p.family.Metric[:count]
	for i := range count {
		value := &f.values[from+i]
		switch m := p.family.Metric[i]; {
		case m.Gauge != nil:
			m.Gauge.Value = value
		case m.Counter != nil:
			m.Counter.Value = value
		default:
			m.Summary.SampleSum, m.Summary.SampleCount = value, &f.counts[from+i]
		}
	}
	labels := len(f.of.Labels)
	for i, value := range f.labels[from*labels : (from+count)*labels] {
		p.pairs[i].Value = value
	}
}
