package metrics

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"dormouse.dev/dormouse/internal/dev/scrape"
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
	return registry
}

func BenchmarkScrape(b *testing.B) {
	g := crowd(10_000)
	sizes, err := scrape.Measure(g)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes:\n%s", sizes.Total(), sizes)
	scrape.Benchmark(b, g)
}
