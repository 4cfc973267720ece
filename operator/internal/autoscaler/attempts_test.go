package autoscaler

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/operator/internal/obstacle"
)

// A pause that is refused for good doesn't have the service fall asleep and wake each minute.
func TestAPauseThatIsRefusedIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	refused := obstacle.New(reasons.AutoscalerUnpausable, "a webhook refuses it")
	seen := Seen{of: scaledObject{uid: "so", min: 1}}
	var a Attempts
	// wantWait fails to pause, and finds out after how many minutes that is tried again.
	wantWait := func(want int) {
		t.Helper()
		a.Look(now, seen)
		a.Paused(now, refused)
		for minutes := 0; a.Failed != nil; minutes++ {
			if minutes > want {
				t.Fatalf("it isn't tried again after %d minutes", want)
			}
			// Passes that can't read it in between change nothing.
			now = now.Add(time.Minute)
			a.Look(now.Add(-time.Second), Seen{})
			if a.Failed == nil {
				t.Fatalf("it is tried again after less than %d minutes, want %d", minutes+1, want)
			}
			if a.Look(now.Add(time.Second), seen); a.Failed == nil && minutes+1 != want {
				t.Fatalf("it is tried again after %d minutes, want %d", minutes+1, want)
			}
		}
	}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		wantWait(want)
	}

	// Another ScaledObject of its name, or one that was changed, has a new chance at once.
	a.Paused(now, refused)
	seen.of.min = 2
	if a.Look(now, seen); a.Failed != nil {
		t.Error("it isn't tried again though the ScaledObject has changed")
	}
	wantWait(1)
	wantWait(2)
	a.Paused(now, nil)
	wantWait(1)

	// The end of a pause is no pause.
	a.Paused(now, nil)
	a.NotUnpaused(now, refused)
	if a.Look(now, seen); a.Failed == nil {
		t.Error("a pause that could not be ended is forgotten")
	}
	wantWait(1)
}
