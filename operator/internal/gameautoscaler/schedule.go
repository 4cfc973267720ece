package gameautoscaler

import (
	"fmt"
	"sync"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// mostMerged bounds how many windows that overlap are followed to tell when the last one closes.
const mostMerged = 16

// schedule wishes its number while a window is open. Overlapping windows are one, and so are
// those of which one opens when another closes.
func schedule(now time.Time, p *v1alpha1.SchedulePolicy) wish {
	c, err := parseCron(p.Cron)
	if err != nil {
		return fails(reasons.ScheduleInvalid, fmt.Sprintf("cron can't be read: %v.", err))
	}
	zone, err := zoneOf(p.TimeZone)
	if err != nil {
		return fails(reasons.ScheduleInvalid, "timeZone is not a name of the IANA database that the operator has.")
	}
	length := max(p.Duration.Duration, time.Minute)
	opened, open := c.last(now, zone, length)
	if !open {
		next, ok := c.next(now, zone)
		if !ok {
			return rests(reasons.WindowClosed, "No window opens in the next years.")
		}
		w := rests(reasons.WindowClosed, "The next window opens at "+clock(next)+".")
		w.again = next
		return w
	}
	closes, atLeast := opened.Add(length), " at least"
	for range mostMerged {
		last, ok := c.last(closes, zone, length)
		if !ok {
			atLeast = ""
			break
		}
		closes = last.Add(length)
	}
	w := wants(p.Replicas, reasons.WindowOpen, "Its window is open until "+clock(closes)+atLeast+".")
	w.again = closes
	if p.Wake {
		w.keepAwake = closes
	}
	return w
}

func clock(t time.Time) string { return t.Format("2006-01-02 15:04 MST") }

// zones are the time zones that were read from the disk; there are some hundred.
var zones sync.Map

func zoneOf(name string) (*time.Location, error) {
	stored, _ := zones.Load(name)
	if zone, ok := stored.(*time.Location); ok {
		return zone, nil
	}
	if name == "Local" {
		return nil, fmt.Errorf("find time zone %s: it is not the same everywhere", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("find time zone: %w", err)
	}
	zones.Store(name, zone)
	return zone, nil
}
