package kit

import (
	"testing"
	"time"
)

func TestALongPassIsFollowedByARest(t *testing.T) {
	t0 := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		worked     time.Duration
		generation int64
		after      time.Duration
		want       time.Duration
	}{
		"a small Fleet's pass":           {300 * time.Microsecond, 1, 0, 0},
		"a large Fleet's":                {10 * time.Millisecond, 1, 100 * time.Millisecond, 400 * time.Millisecond},
		"the rest is over":               {10 * time.Millisecond, 1, 500 * time.Millisecond, 0},
		"the Fleet has changed":          {10 * time.Millisecond, 2, 0, 0},
		"a pass on a machine that hangs": {time.Second, 1, 0, maxRest},
	} {
		var p Pacing
		p.Took(t0, 1, c.worked)
		if got := max(0, p.Rest(t0.Add(c.after), c.generation)); got != c.want {
			t.Errorf("%s: the next one waits for %s, want %s", name, got, c.want)
		}
	}
	var first Pacing
	if got := first.Rest(t0, 1); got > 0 {
		t.Errorf("the first pass waits for %s", got)
	}
}
