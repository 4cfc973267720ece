package udp

import (
	"math"
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

// A client that goes on sending would stand in line for ever: its last turn has no end but its own.
func TestASessionThatGoesOnSendingHasALastTurn(t *testing.T) {
	turns := newPace().begin()
	for n := 1; turns.left == turnDatagrams; n++ {
		if n > mostTurns {
			t.Fatalf("turn %d has %d datagrams", n, turns.left)
		}
		turns.left = 0
		turns.next()
	}
	if turns.left != math.MaxInt || turns.taken != mostTurns+1 {
		t.Errorf("turn %d has %d datagrams", turns.taken, turns.left)
	}
	turns.end()
}
