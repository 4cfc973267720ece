package traffic

import (
	"testing"
	"time"
)

func TestHistogramKeepsDurationsWithinAStep(t *testing.T) {
	for d := time.Duration(1); d < time.Minute; d = d*21/20 + 1 {
		h := Histogram{}
		h.add(d)
		if got := h.Rank(0.5); (got - d).Abs() > d/64+1 {
			t.Fatalf("%s is kept as %s", d, got)
		}
		if was := step(d - 1); was > step(d) {
			t.Fatalf("%s is below its predecessor", d)
		}
	}
}

func TestHistogramRanks(t *testing.T) {
	even, odd := Histogram{}, Histogram{}
	for i := 2; i <= 100; i += 2 {
		even.add(time.Duration(i))
		odd.add(time.Duration(i - 1))
	}
	even.Merge(odd)
	for q, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 1: 100} {
		if got := even.Rank(q); got != want {
			t.Errorf("rank %v of 1 to 100 is %d", q, got)
		}
	}
	if got := (Histogram{}).Rank(0.5); got != 0 {
		t.Errorf("the median of nothing is %s", got)
	}
}
