// Package requeue has when a controller looks at an object again though no watched object
// changes. Pure planners use it; it knows nothing of controllers.
package requeue

import "time"

// After is after how long to look again at the latest; 0 is never.
type After time.Duration

// AtMost asks for a look after each of these durations at the latest. One that isn't positive asks
// for nothing.
func (a *After) AtMost(latest ...time.Duration) {
	for _, d := range latest {
		if d > 0 && (*a == 0 || d < time.Duration(*a)) {
			*a = After(d)
		}
	}
}

// Duration is a as a time.Duration, for reconcile.Result.
func (a After) Duration() time.Duration { return time.Duration(a) }

// String formats a for people.
func (a After) String() string { return time.Duration(a).String() }
