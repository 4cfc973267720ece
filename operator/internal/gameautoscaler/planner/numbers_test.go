package planner

import (
	"math"
	"testing"
)

func TestNumbersAreRoundedUpAndNeverOverflow(t *testing.T) {
	for name, test := range map[string]struct{ a, b, c, want int64 }{
		"even":                  {6, 4, 3, 8},
		"a third":               {1, 1, 3, 1},
		"just above":            {10, 10, 99, 2},
		"nothing":               {0, 5, 3, 0},
		"nothing of nothing":    {0, 0, 0, 0},
		"less than nothing":     {-5, 5, 3, 0},
		"divided by 0":          {1, 1, 0, math.MaxInt64},
		"divided by less":       {1, 1, -1, math.MaxInt64},
		"large in between":      {math.MaxInt64, 100, 100, math.MaxInt64},
		"large":                 {math.MaxInt64, 100, 99, math.MaxInt64},
		"very large":            {math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
		"just too large":        {1 << 32, 1 << 32, 1, math.MaxInt64},
		"rounded above largest": {math.MaxInt64, 3, 2, math.MaxInt64},
	} {
		if got := scaled(test.a, test.b, test.c); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	if got := sum(math.MaxInt64, 1); got != math.MaxInt64 {
		t.Errorf("a sum is %d", got)
	}
	for n, want := range map[int64]int32{-1: 0, 0: 0, 7: 7, 10000: 10000, 10001: 10000, math.MaxInt64: 10000, math.MinInt64: 0} {
		if got := bounded(n); got != want {
			t.Errorf("of %d: %d, want %d", n, got, want)
		}
	}
}
