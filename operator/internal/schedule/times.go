package schedule

import (
	"fmt"
	"time"
)

// Times are points in time that recur, by the clocks of a time zone.
type Times struct {
	cron cron
	zone *time.Location
}

// ParseTimes reads points in time. The error says which field is wrong, and why.
func ParseTimes(expression, timeZone string) (Times, error) {
	c, err := parseCron(expression)
	if err != nil {
		return Times{}, fmt.Errorf("cron can't be read: %w", err)
	}
	zone, err := Zone(timeZone)
	if err != nil {
		return Times{}, err
	}
	return Times{cron: c, zone: zone}, nil
}

// Last is the last of them that is no later than now; false: there was none within a time.
func (t Times) Last(now time.Time, within time.Duration) (time.Time, bool) {
	return t.cron.last(now, t.zone, within)
}

// Next is the first of them after now; false: there is none within the next years,
// see LookAgain.
func (t Times) Next(now time.Time) (time.Time, bool) { return t.cron.next(now, t.zone) }
