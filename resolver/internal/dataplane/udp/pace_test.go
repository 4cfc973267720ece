package udp

import (
	"testing"
	"time"
)

// A client that sends faster than it is paced would never be done.
func TestNoSessionIsPacedForLongerThanItsTime(t *testing.T) {
	t.Parallel()
	p := newPace()
	p.limiter.SetLimit(0)
	p.limiter.SetBurst(0)
	turn := p.begin()
	defer turn.end()
	turn.before = turnTime
	p.last = time.Now()
	for range 10 * paceMost {
		turn.next()
		turn.wait(t.Context())
	}
	if unanswered := p.unanswered.Load(); unanswered != paceMost {
		t.Errorf("%d datagrams count as ahead of the answers, want %d at most", unanswered, paceMost)
	}
}
