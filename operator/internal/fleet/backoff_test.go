package fleet

import (
	"testing"
	"time"
)

// step is one pass: what is seen, and what is to be of it.
type step struct {
	seconds int
	servers []server
	// wait is for how long replacements wait after it.
	wait time.Duration
	debt int
}

// since is how long a Server has been as it is.
func since(seconds int) func(*server) { return func(s *server) { s.changed = at(seconds) } }

func TestReplacementsWaitLongerTheMoreFail(t *testing.T) {
	tests := map[string][]step{
		"each round that fails doubles the wait": {
			{0, []server{has("a", 0, broken, since(0))}, time.Second, 1},
			{5, []server{has("b", 0, broken, since(5))}, 2 * time.Second, 1},
			{10, []server{has("c", 0, broken, since(10))}, 4 * time.Second, 1},
			{20, []server{has("d", 0, broken, since(20))}, 8 * time.Second, 1},
		},
		"those that fail side by side are one round": {
			{0, []server{has("a", 0, broken, since(0)), has("b", 0, broken, since(0))}, time.Second, 2},
			{0, []server{has("a", 0, broken, since(0)), has("b", 0, broken, since(0)), has("c", 0, broken, since(0))}, time.Second, 3},
		},
		"one counts once": {
			{0, []server{has("a", 1, broken, since(0))}, time.Second, 1},
			{5, []server{has("a", 1, broken, byFleet, since(0))}, 0, 0},
		},
		"one that was Ready for ten minutes hasn't failed": {
			{0, []server{has("a", 0, since(0))}, 0, 0},
			{600, []server{has("a", 0, broken, since(600))}, 0, 0},
		},
		"one that was Ready for less has": {
			{0, []server{has("a", 0, since(0))}, 0, 0},
			{599, []server{has("a", 0, broken, since(599))}, time.Second, 1},
		},
		"a match that was played hasn't failed": {
			{0, []server{has("a", 0, since(0))}, 0, 0},
			{20, []server{has("a", 8, since(0))}, 0, 0},
			{60, []server{has("a", 0, ended, since(0))}, 0, 0},
		},
		"a game that ends unplayed has": {
			{0, []server{has("a", 0, since(0))}, 0, 0},
			{59, []server{has("a", 0, ended, since(0))}, time.Second, 1},
		},
		"not one that was Ready for a match's time, which may not tell who plays": {
			{0, []server{has("a", 0, since(0))}, 0, 0},
			{60, []server{has("a", 0, ended, since(0))}, 0, 0},
		},
		"what is deleted or drained for another reason hasn't": {
			{0, []server{has("a", 0, broken, byHand), has("b", 0, broken, deleting)}, 0, 0},
		},
		"a replacement that lasts ends the streak": {
			{0, []server{has("a", 0, broken, since(0))}, time.Second, 1},
			{5, []server{has("b", 0, broken, since(5))}, 2 * time.Second, 1},
			{700, []server{has("c", 0, since(10)), has("d", 0, broken, since(700))}, time.Second, 1},
		},
		"one that lasts since before the failures doesn't": {
			{0, []server{has("z", 0, since(-9000)), has("a", 0, broken, since(0))}, time.Second, 1},
			{5, []server{has("z", 0, since(-9000)), has("b", 0, broken, since(5))}, 2 * time.Second, 1},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var b backoff
			for _, s := range steps {
				now := at(s.seconds)
				b.learn(now, s.servers)
				if wait := max(b.notBefore.Sub(now), 0); wait != s.wait || b.debt != s.debt {
					t.Errorf("after %d s %d replacements wait for %s, want %d for %s", s.seconds, b.debt, wait, s.debt, s.wait)
				}
			}
		})
	}
}

func TestTheWaitIsBounded(t *testing.T) {
	var b backoff
	now := t0
	for range 100 {
		b.learn(now, []server{has(now.String(), 0, broken, func(s *server) { s.changed = now })})
		b.refused(now, "no")
		now = b.notBefore
	}
	if wait := b.notBefore.Sub(b.last); wait != 5*time.Minute {
		t.Errorf("the hundredth replacement waits for %s, want 5m", wait)
	}
	if wait := b.refusedUntil.Sub(b.last); wait != 5*time.Minute {
		t.Errorf("the hundredth try waits for %s, want 5m", wait)
	}
	if len(b.lives) != 1 {
		t.Errorf("%d Servers are remembered, want the one that is there", len(b.lives))
	}
}
