package objectmetrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

type collector func() []*Family

func (c collector) Families() []*Family { return c() }

func TestSeriesOfObjectsStandAmongThoseOfTheRegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, name := range []string{"a", "d"} {
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "One."}))
	}
	labels := []string{"namespace", "service"}
	gauge := &Metric{Name: "b", Help: "B.", Type: dto.MetricType_GAUGE, Labels: labels}
	counter := &Metric{Name: "e_total", Help: "E.", Type: dto.MetricType_COUNTER, Labels: labels}
	summary := &Metric{Name: "c_seconds", Help: "C.", Type: dto.MetricType_SUMMARY, Labels: labels}
	none := &Metric{Name: "none", Help: "None.", Type: dto.MetricType_GAUGE}
	games, lobby, arena := "games", "lobby", "ar\"ena"
	g := NewGatherer(registry)
	g.Add(collector(func() []*Family {
		b, c, e := gauge.Family(), summary.Family(), counter.Family()
		b.Gauge(2, &games, &arena)
		b.Gauge(-1.5, &games, &lobby)
		c.Summary(3, 4.5, &games, &lobby)
		e.Counter(7, &games, &lobby)
		return []*Family{e, c, none.Family(), b}
	}))
	want := `
# HELP a One.
# TYPE a gauge
a 0
# HELP b B.
# TYPE b gauge
b{namespace="games",service="ar\"ena"} 2
b{namespace="games",service="lobby"} -1.5
# HELP c_seconds C.
# TYPE c_seconds summary
c_seconds_sum{namespace="games",service="lobby"} 4.5
c_seconds_count{namespace="games",service="lobby"} 3
# HELP d One.
# TYPE d gauge
d 0
# HELP e_total E.
# TYPE e_total counter
e_total{namespace="games",service="lobby"} 7
`
	if err := testutil.GatherAndCompare(g, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestManySeriesKeepTheirValues(t *testing.T) {
	metric := &Metric{Name: "n", Help: "N.", Type: dto.MetricType_GAUGE, Labels: []string{"a", "b", "c"}}
	f := metric.Family()
	for i := range 3 * slabSize {
		value := fmt.Sprint(i)
		f.Gauge(float64(i), &value, &value, &value)
	}
	for i, m := range f.family.GetMetric() {
		if m.GetGauge().GetValue() != float64(i) || len(m.GetLabel()) != 3 {
			t.Fatalf("series %d is %v", i, m)
		}
		for k, l := range m.GetLabel() {
			if l.GetName() != metric.Labels[k] || l.GetValue() != fmt.Sprint(i) {
				t.Fatalf("series %d has the label %v", i, l)
			}
		}
	}
}
