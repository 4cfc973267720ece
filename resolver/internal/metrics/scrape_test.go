package metrics

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/test/scrape"
)

// crowd has so many services that each were woken once.
func crowd(n int) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	m := New(registry)
	m.HeldBytes(func() int64 { return 0 }, 0)
	m.Routes(n)
	for i := range n {
		wake(m, fmt.Sprintf("survival-%05d", i))
	}
	g := objectmetrics.NewGatherer(registry)
	g.Add(m)
	return g
}

// What a scrape takes of each service bounds how many there may be.
func TestAServiceTakesFewBytesOfAScrape(t *testing.T) {
	t.Parallel()
	const most = 500
	few, many := bytesOf(t, crowd(100)), bytesOf(t, crowd(1100))
	if each := (many.Total() - few.Total()) / 1000; each > most {
		t.Errorf("a service takes %d bytes of each scrape, want %d at most:\n%s", each, most, many)
	}
}

func bytesOf(tb testing.TB, g prometheus.Gatherer) scrape.Sizes {
	tb.Helper()
	sizes, err := scrape.Measure(g)
	if err != nil {
		tb.Fatal(err)
	}
	return sizes
}

func BenchmarkScrape(b *testing.B) {
	g := crowd(10_000)
	sizes := bytesOf(b, g)
	b.Logf("%d bytes:\n%s", sizes.Total(), sizes)
	scrape.Benchmark(b, g)
}
