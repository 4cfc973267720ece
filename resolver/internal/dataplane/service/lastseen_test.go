package service

import (
	"testing"
	"time"
)

func TestAMomentIsAtMostAStepTooEarly(t *testing.T) {
	var m LastSeen
	if _, ever := m.Last(); ever {
		t.Error("something happened before it did")
	}
	began := time.Unix(1_000_000, 0)
	for after := time.Duration(0); after < 10*LastSeenStep; after += LastSeenStep / 7 {
		now := began.Add(after)
		m.Note(now)
		if at, ever := m.Last(); !ever || at.After(now) || now.Sub(at) >= LastSeenStep {
			t.Fatalf("what happened at %s is said to have been at %s", now, at)
		}
	}
}

// The clock may be set back; the moment follows, or a service would seem to be used
// until the clock is there again.
func TestAMomentFollowsAClockThatIsSetBack(t *testing.T) {
	var m LastSeen
	ahead := time.Unix(1_000_000, 0)
	m.Note(ahead)
	back := ahead.Add(-time.Hour)
	m.Note(back)
	if at, _ := m.Last(); !at.Equal(back) {
		t.Errorf("what happened at %s is said to have been at %s", back, at)
	}
}
