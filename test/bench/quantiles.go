package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// quantiles sum up durations, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	Max float64 `json:"max"`
}

// quantilesOf takes the nearest rank: each figure is one that was measured. Of nothing they are 0.
func quantilesOf(durations []time.Duration) quantiles {
	if len(durations) == 0 {
		return quantiles{}
	}
	sorted := slices.Sorted(slices.Values(durations))
	rank := func(q float64) float64 {
		i := int(math.Ceil(q*float64(len(sorted)))) - 1
		return milliseconds(sorted[max(i, 0)])
	}
	return quantiles{P50: rank(0.5), P90: rank(0.9), Max: rank(1)}
}

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

func (q quantiles) String() string {
	return fmt.Sprintf("p50 %8.1f ms   p90 %8.1f ms   max %8.1f ms", q.P50, q.P90, q.Max)
}
