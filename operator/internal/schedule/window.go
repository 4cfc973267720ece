package schedule

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// maxMerged bounds how many windows that overlap are followed to tell when the last one closes.
const maxMerged = 16

// Window is a window of time that recurs.
type Window struct {
	cron   cron
	zone   *time.Location
	length time.Duration
}

// Parse reads a window. The error says which field is wrong, and why.
func Parse(w v1alpha1.TimeWindow) (Window, error) {
	c, err := parseCron(w.Cron)
	if err != nil {
		return Window{}, fmt.Errorf("cron can't be read: %w", err)
	}
	zone, err := Zone(w.TimeZone)
	if err != nil {
		return Window{}, err
	}
	return Window{cron: c, zone: zone, length: max(w.Duration.Duration, time.Minute)}, nil
}

// Opening is a time in which windows are open.
type Opening struct {
	// Begun is when the newest of the open windows opened.
	Begun time.Time
	// Closes is when the last one closes that is open by then; windows of which one opens when
	// another closes are one. AtLeast is set where more may follow.
	Closes  time.Time
	AtLeast bool
	// Last is the index of the window that closes then.
	Last int
}

// Open is the time in which some of the windows are open; false: none is.
func Open(now time.Time, windows ...Window) (Opening, bool) {
	var o Opening
	for i, w := range windows {
		if begun, ok := w.cron.last(now, w.zone, w.length); ok {
			if begun.After(o.Begun) {
				o.Begun = begun
			}
			o.extend(i, begun.Add(w.length))
		}
	}
	if o.Begun.IsZero() {
		return o, false
	}
	for range maxMerged {
		before := o.Closes
		for i, w := range windows {
			if begun, ok := w.cron.last(before, w.zone, w.length); ok {
				o.extend(i, begun.Add(w.length))
			}
		}
		if o.Closes.Equal(before) {
			return o, true
		}
	}
	o.AtLeast = true
	return o, true
}

// extend takes in that a window closes later.
func (o *Opening) extend(i int, closes time.Time) {
	if closes.After(o.Closes) {
		o.Closes, o.Last = closes, i
	}
}

// Next is when a window opens next, and the index of that; false: none does within the next
// years, see LookAgain.
func Next(now time.Time, windows ...Window) (opens time.Time, which int, ok bool) {
	for i, w := range windows {
		if next, found := w.cron.next(now, w.zone); found && (!ok || next.Before(opens)) {
			opens, which, ok = next, i, true
		}
	}
	return opens, which, ok
}

// Clock is a time as it is told to people.
func Clock(t time.Time) string { return t.Format("2006-01-02 15:04 MST") }
