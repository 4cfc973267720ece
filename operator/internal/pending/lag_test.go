package pending

import (
	"testing"
	"time"
)

func TestALaggingCacheIsWaitedForButNotForEver(t *testing.T) {
	var l Lag
	now := time.Unix(1000, 0)
	if l.See(now, true); !l.Lasts(now) {
		t.Error("a cache that lags isn't waited for")
	}
	later := now.Add(MaxLag)
	if l.See(later, true); l.Lasts(later) {
		t.Error("what never comes is waited for")
	}
	l.See(later, false)
	if l.See(later, true); !l.Lasts(later) {
		t.Error("a cache that lags once more isn't waited for")
	}
}
