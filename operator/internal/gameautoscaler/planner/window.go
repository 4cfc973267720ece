package planner

import "time"

// maxSamples bounds a window. That many different wishes, each lower than the one before, are
// rare; beyond it the oldest ones become one.
const maxSamples = 32

// sample is a wish, and when it was last made.
type sample struct {
	at   time.Time
	wish int32
}

// window has the wishes of some time that still count: the first is the extreme, each other one
// is less extreme and newer, and the last is the newest.
type window []sample

// higher and lower are what is extreme.
func higher(a, b int32) bool { return a > b }
func lower(a, b int32) bool  { return a < b }

// add returns the window with a new wish and without what is older than length. A wish counts
// until another takes its place, so that the result doesn't depend on how often it is made
// again. The window itself is left as it is.
func (w window) add(now time.Time, length time.Duration, wish int32, extreme func(a, b int32) bool) window {
	next := make(window, 0, min(len(w), maxSamples)+1)
	for i, s := range w {
		if i == len(w)-1 || s.at.After(now) { // the last wish holds on; a clock went backwards
			s.at = now
		}
		if now.Sub(s.at) < length && extreme(s.wish, wish) {
			next = append(next, s)
		}
	}
	next = append(next, sample{now, wish})
	if excess := len(next) - maxSamples; excess > 0 {
		// The extreme holds as long as the newest of those that make room.
		next[excess].wish = next[0].wish
		next = next[excess:]
	}
	return next
}

// left is for how long the extreme goes on to count.
func (w window) left(now time.Time, length time.Duration) time.Duration {
	if len(w) < 2 {
		return 0 // it is the wish of now
	}
	return w[0].at.Add(length).Sub(now)
}
