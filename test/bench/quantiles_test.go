package main

import (
	"testing"
	"time"
)

func TestQuantilesAreMeasuredValuesByNearestRank(t *testing.T) {
	var ds []time.Duration
	for i := 30; i > 0; i-- {
		ds = append(ds, time.Duration(i)*time.Millisecond)
	}
	if got, want := quantilesOf(ds), (quantiles{P50: 15, P90: 27, Max: 30}); got != want {
		t.Errorf("quantiles of 1 to 30 ms = %+v, want %+v", got, want)
	}
	if got, want := quantilesOf(ds[:1]), (quantiles{P50: 30, P90: 30, Max: 30}); got != want {
		t.Errorf("quantiles of one value = %+v, want %+v", got, want)
	}
	if got := quantilesOf(nil); got != (quantiles{}) {
		t.Errorf("quantiles of nothing = %+v", got)
	}
}
