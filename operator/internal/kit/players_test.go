package kit

import (
	"testing"
	"time"
)

// A status that only shows a start waits once, and what is more than that waits for nothing.
func TestAStartWaits(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	var s Start
	for i, c := range []struct {
		at     time.Duration
		starts bool
		want   time.Duration
	}{
		{0, true, StartPause},
		{200 * time.Millisecond, true, StartPause - 200*time.Millisecond},
		{StartPause, true, 0},
		{StartPause + time.Second, true, 0},
		{StartPause + time.Second, false, 0},
		{time.Minute, true, StartPause}, // the next wake
		{time.Minute + time.Millisecond, false, 0},
		{time.Minute + 2*time.Millisecond, true, StartPause},
	} {
		if got := s.Wait(began.Add(c.at), c.starts); got != c.want {
			t.Errorf("step %d: it waits for %s, want %s", i, got, c.want)
		}
	}
}
