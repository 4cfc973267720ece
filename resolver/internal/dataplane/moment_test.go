package dataplane

import (
	"testing"
	"time"
)

func TestAMomentIsAtMostAStepTooEarly(t *testing.T) {
	var m moment
	if _, ever := m.last(); ever {
		t.Error("something happened before it did")
	}
	began := time.Unix(1_000_000, 0)
	for after := time.Duration(0); after < 10*momentStep; after += momentStep / 7 {
		now := began.Add(after)
		m.note(now)
		if at, ever := m.last(); !ever || at.After(now) || now.Sub(at) >= momentStep {
			t.Fatalf("what happened at %s is said to have been at %s", now, at)
		}
	}
}

// The clock may be set back; the moment follows, or a service would seem to be used
// until the clock is there again.
func TestAMomentFollowsAClockThatIsSetBack(t *testing.T) {
	var m moment
	ahead := time.Unix(1_000_000, 0)
	m.note(ahead)
	back := ahead.Add(-time.Hour)
	m.note(back)
	if at, _ := m.last(); !at.Equal(back) {
		t.Errorf("what happened at %s is said to have been at %s", back, at)
	}
}
