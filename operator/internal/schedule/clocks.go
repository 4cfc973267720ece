package schedule

import "time"

// horizon is how far ahead a schedule's next window is looked for. It is more than the four
// years to the next leap day.
const horizon = 5 * 366 * 24 * time.Hour

// LookAgain is when to look again where nothing is due within that: a leap day that is a Sunday, for
// instance, comes every 28 years.
const LookAgain = 24 * time.Hour

// last is the last time within length before now, and not as long ago as that, at which the
// expression is due by the clocks of a zone.
//
// Between two changes of a zone's clocks they go evenly, and each such span is searched on its
// own. So times that clocks show twice are due twice. Times that they skip are due when they do.
func (c cron) last(now time.Time, zone *time.Location, length time.Duration) (time.Time, bool) {
	floor := now.Add(-length)
	for at := now; at.After(floor); {
		offset := OffsetAt(at, zone)
		begin, _ := at.In(zone).ZoneBounds()
		from := floor
		if begin.After(floor) {
			from = begin
		}
		if shown, ok := c.lastShown(ShownAt(at, offset), ShownAt(from, offset)); ok {
			if due := unshown(shown, offset, zone); due.After(floor) {
				return due, true
			}
			return time.Time{}, false
		}
		if !begin.After(floor) {
			return time.Time{}, false
		}
		before := OffsetAt(begin.Add(-time.Nanosecond), zone)
		if _, skipped := c.nextShown(ShownAt(begin, before), ShownAt(begin, offset)); skipped {
			return begin.In(zone), true
		}
		at = begin.Add(-time.Nanosecond)
	}
	return time.Time{}, false
}

// next is the first time after now at which the expression is due by the clocks of a zone.
func (c cron) next(now time.Time, zone *time.Location) (time.Time, bool) {
	ceiling := now.Add(horizon)
	for at := now.Add(time.Nanosecond); at.Before(ceiling); {
		offset := OffsetAt(at, zone)
		_, end := at.In(zone).ZoneBounds()
		to := ceiling
		if !end.IsZero() && end.Before(ceiling) {
			to = end
		}
		if shown, ok := c.nextShown(ShownAt(at, offset), ShownAt(to, offset)); ok {
			return unshown(shown, offset, zone), true
		}
		if end.IsZero() {
			break
		}
		if _, skipped := c.nextShown(ShownAt(end, offset), ShownAt(end, OffsetAt(end, zone))); skipped {
			return end.In(zone), true
		}
		at = end
	}
	return time.Time{}, false
}

// OffsetAt is how far a zone's clocks are ahead of UTC.
func OffsetAt(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// ShownAt is what clocks show that are so far ahead of UTC.
func ShownAt(t time.Time, offset time.Duration) time.Time { return t.UTC().Add(offset) }

// unshown is when they show it.
func unshown(shown time.Time, offset time.Duration, zone *time.Location) time.Time {
	return shown.Add(-offset).In(zone)
}
