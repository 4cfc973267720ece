package planner

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/schedule"
)

// scheduled wishes its number while a window is open. Overlapping windows are one, and so are
// those of which one opens when another closes.
func scheduled(now time.Time, p *v1alpha1.SchedulePolicy) wish {
	window, err := schedule.Parse(p.TimeWindow)
	if err != nil {
		return fails(reasons.ScheduleInvalid, fmt.Sprintf("%v.", err))
	}
	opening, open := schedule.Open(now, window)
	if !open {
		next, _, ok := schedule.Next(now, window)
		if !ok {
			w := rests(reasons.WindowClosed, "No window opens in the next years.")
			w.again = now.Add(schedule.LookAgain)
			return w
		}
		w := rests(reasons.WindowClosed, "The next window opens at "+schedule.Clock(next)+".")
		w.again = next
		return w
	}
	atLeast := ""
	if opening.AtLeast {
		atLeast = " at least"
	}
	w := wants(p.Replicas, reasons.WindowOpen, "Its window is open until "+schedule.Clock(opening.Closes)+atLeast+".")
	w.again = opening.Closes
	if p.Wake {
		w.keepAwake = opening.Closes
	}
	return w
}
