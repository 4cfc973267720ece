// Package scrape measures what a scrape of a program's metrics costs, for tests and benchmarks.
package scrape

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"dormouse.dev/dormouse/internal/objectmetrics"
)

// Sizes are the bytes that each metric takes in the answer to a scrape, as text.
type Sizes map[string]int

// Total is the size of the whole answer.
func (s Sizes) Total() (n int) {
	for _, size := range s {
		n += size
	}
	return n
}

// String lists the metrics, the largest first.
func (s Sizes) String() string {
	var w strings.Builder
	largest := func(a, b string) int { return cmp.Or(s[b]-s[a], strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(s), largest) {
		fmt.Fprintf(&w, "%10d %s\n", s[name], name)
	}
	return w.String()
}

// Measure scrapes once.
func Measure(g prometheus.Gatherer) (Sizes, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather the metrics: %w", err)
	}
	sizes := Sizes{}
	for _, family := range families {
		var text bytes.Buffer
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, fmt.Errorf("write %s: %w", family.GetName(), err)
		}
		sizes[family.GetName()] = text.Len()
	}
	return sizes, nil
}

// Benchmark scrapes as often as b asks for, and reports a scrape's size and the time of a
// processor that it takes, which doesn't depend on what else the machine does.
func Benchmark(b *testing.B, g prometheus.Gatherer) {
	b.Helper()
	b.ReportAllocs()
	var text bytes.Buffer
	began := processorTime(b)
	for b.Loop() {
		text.Reset()
		if err := objectmetrics.Write(g, &text, expfmt.NewFormat(expfmt.TypeTextPlain)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime(b)-began)*1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(text.Len()), "bytes/scrape")
}

// processorTime is how many seconds of a processor this process has used, with the garbage
// collector's.
func processorTime(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
