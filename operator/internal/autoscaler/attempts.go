package autoscaler

import (
	"time"

	"dormouse.dev/dormouse/operator/internal/obstacle"
)

// A service stays awake for firstRetry after its ScaledObject could not be paused, and for twice as
// long after each further time, up to maxRetry: else it would fall asleep and wake for ever.
const firstRetry, maxRetry = time.Minute, time.Hour

// Attempts remembers failed attempts to pause a ScaledObject, or to end that.
type Attempts struct {
	// Failed is the last one, while the next must wait.
	Failed *obstacle.Obstacle

	until time.Time
	// refused counts the failed pauses in a row, of what was last read.
	refused int
	of      scaledObject
}

// Look lets the next attempt be made once its time has come, or once the ScaledObject has changed.
func (a *Attempts) Look(now time.Time, seen Seen) {
	switch {
	case seen.of.uid != "" && seen.of != a.of:
		*a = Attempts{of: seen.of}
	case now.After(a.until):
		a.Failed = nil
	}
}

// Paused notes an attempt to pause; nil: it succeeded.
func (a *Attempts) Paused(now time.Time, failed *obstacle.Obstacle) {
	if failed == nil {
		*a = Attempts{of: a.of}
		return
	}
	wait := firstRetry
	for range a.refused {
		wait = min(2*wait, maxRetry)
	}
	a.refused++
	a.Failed, a.until = failed, now.Add(wait)
}

// NotUnpaused notes why a pause could not be ended.
func (a *Attempts) NotUnpaused(now time.Time, failed *obstacle.Obstacle) {
	a.Failed, a.until = failed, now.Add(firstRetry)
}
