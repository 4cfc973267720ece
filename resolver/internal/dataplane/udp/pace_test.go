package udp

import (
	"testing"
	"time"
)

// A client that sends faster than it is paced would keep the port's others waiting
// for ever.
func TestNoSessionIsPacedForLongerThanItsTurn(t *testing.T) {
	t.Parallel()
	p := newPace()
	p.limiter.SetLimit(0)
	p.limiter.SetBurst(0)
	p.begin()
	defer p.end()
	p.began = time.Now().Add(-turnTime)
	p.last = time.Now()
	for range 10 * paceMost {
		p.wait(t.Context())
	}
	if unanswered := p.unanswered.Load(); unanswered != paceMost {
		t.Errorf("%d datagrams count as ahead of the answers, want %d at most", unanswered, paceMost)
	}
}
