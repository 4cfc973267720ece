package requeue

import (
	"testing"
	"time"
)

func TestTheEarliestLookThatWasAskedForCounts(t *testing.T) {
	for name, c := range map[string]struct {
		asked []time.Duration
		want  time.Duration
	}{
		"none":              {nil, 0},
		"one":               {[]time.Duration{time.Second}, time.Second},
		"an earlier one":    {[]time.Duration{time.Minute, time.Second}, time.Second},
		"a later one":       {[]time.Duration{time.Second, time.Minute}, time.Second},
		"never asks":        {[]time.Duration{time.Second, 0}, time.Second},
		"what is over asks": {[]time.Duration{-time.Second}, 0},
	} {
		var after After
		for _, d := range c.asked {
			after.AtMost(d)
		}
		if after.Duration() != c.want {
			t.Errorf("%s: %s, want %s", name, after.Duration(), c.want)
		}
	}
}
