package objectmetrics

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
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

// crowd has so many series of each type.
func crowd(n int) *Gatherer {
	labels := []string{"a", "b"}
	gauge := &Metric{Name: "g", Help: "G.", Type: dto.MetricType_GAUGE, Labels: labels}
	counter := &Metric{Name: "c_total", Help: "C.", Type: dto.MetricType_COUNTER, Labels: labels[:1]}
	summary := &Metric{Name: "s_seconds", Help: "S.", Type: dto.MetricType_SUMMARY, Labels: labels}
	single := &Metric{Name: "single", Help: "One.", Type: dto.MetricType_GAUGE}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_the_registry", Help: "R."}))
	g := NewGatherer(registry)
	g.Add(collector(func() []*Family {
		gauges, counters, summaries, one := gauge.Family(), counter.Family(), summary.Family(), single.Family()
		for i := range n {
			first, second := fmt.Sprint(i), fmt.Sprintf("\"%d\n", i)
			gauges.Gauge(float64(i), &first, &second)
			counters.Counter(float64(n-i), &first)
			summaries.Summary(uint64(i), float64(i)/2, &first, &second)
		}
		one.Gauge(7)
		return []*Family{gauges, counters, summaries, one}
	}))
	return g
}

func TestManySeriesKeepTheirValues(t *testing.T) {
	const n = 3*partSize + 1
	families, err := crowd(n).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "of_") || f.GetName() == "single" {
			continue
		}
		if len(f.GetMetric()) != n {
			t.Fatalf("%s has %d series, want %d", f.GetName(), len(f.GetMetric()), n)
		}
		for i, m := range f.GetMetric() {
			first := m.GetLabel()[0]
			if first.GetName() != "a" || first.GetValue() != fmt.Sprint(i) {
				t.Fatalf("series %d of %s is %v", i, f.GetName(), m)
			}
			if len(m.GetLabel()) == 2 && (m.GetLabel()[1].GetName() != "b" || m.GetLabel()[1].GetValue() != fmt.Sprintf("\"%d\n", i)) {
				t.Fatalf("series %d of %s is %v", i, f.GetName(), m)
			}
			switch f.GetName() {
			case "g":
				if m.GetGauge().GetValue() != float64(i) {
					t.Fatalf("series %d is %v", i, m)
				}
			case "c_total":
				if m.GetCounter().GetValue() != float64(n-i) {
					t.Fatalf("series %d is %v", i, m)
				}
			default:
				if s := m.GetSummary(); s.GetSampleCount() != uint64(i) || s.GetSampleSum() != float64(i)/2 {
					t.Fatalf("series %d is %v", i, m)
				}
			}
		}
	}
}

// What is written in parts is what is written whole, with each metric's lines together.
func TestTheTextIsThatOfTheWhole(t *testing.T) {
	for _, format := range expfmt.DefaultOpenMetricsAcceptedFormats() {
		for _, n := range []int{0, 1, partSize, 3*partSize + 1} {
			g := crowd(n)
			families, err := g.Gather()
			if err != nil {
				t.Fatal(err)
			}
			// The registry's come first.
			slices.SortStableFunc(families, func(a, b *dto.MetricFamily) int {
				return strings.Compare(order(a.GetName()), order(b.GetName()))
			})
			var whole, parts bytes.Buffer
			encoder := expfmt.NewEncoder(&whole, format)
			for _, f := range families {
				if err := encoder.Encode(f); err != nil {
					t.Fatal(err)
				}
			}
			if closer, ok := encoder.(expfmt.Closer); ok {
				if err := closer.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := Write(g, &parts, format); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(whole.String(), parts.String()); diff != "" {
				t.Errorf("%s, %d series (-whole +in parts):\n%s", format, n, diff)
			}
		}
	}
}

// order is by where a metric comes in what is written.
func order(metric string) string {
	return fmt.Sprint(slices.Index([]string{"of_the_registry", "g", "c_total", "s_seconds", "single"}, metric))
}

// A gatherer of a library is written, too.
func TestARegistryIsWritten(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a", Help: "One."}))
	var text bytes.Buffer
	if err := Write(registry, &text, expfmt.NewFormat(expfmt.TypeTextPlain)); err != nil || text.String() != "# HELP a One.\n# TYPE a gauge\na 0\n" {
		t.Errorf("it is %q, %v", text.String(), err)
	}
	failing := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("no") })
	if err := Write(NewGatherer(failing), &text, expfmt.NewFormat(expfmt.TypeTextPlain)); err == nil {
		t.Error("a gatherer that fails is none")
	}
}
