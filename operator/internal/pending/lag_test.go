package pending

import (
	"testing"
	"time"
)

func TestALaggingCacheIsWaitedForButNotForEver(t *testing.T) {
	var l Lag
	now := time.Unix(1000, 0)
	if !l.Lasts(now, true) {
		t.Error("a cache that lags isn't waited for")
	}
	later := now.Add(MaxLag)
	if l.Lasts(later, true) {
		t.Error("what never comes is waited for")
	}
	l.Lasts(later, false)
	if !l.Lasts(later, true) {
		t.Error("a cache that lags once more isn't waited for")
	}
}
