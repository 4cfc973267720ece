package planner

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/schedule"
)

const (
	// defaultLead is for Servers whose time to get Ready isn't known, and leastLead and mostLead
	// bound twice that time.
	defaultLead = 5 * time.Minute
	leastLead   = time.Minute
	mostLead    = 30 * time.Minute
)

// forecast wishes Servers for the players who usually come at this hour of the week, and a lead
// before it. They are expected where anybody came in enough of the weeks that are remembered; as
// many then, as a percentile of those weeks' peaks says.
//
// It returns what is remembered, with what is seen now. Stale reports are not remembered, and
// they don't keep it from its wish, which is not of now's players.
func forecast(now time.Time, p *v1alpha1.ForecastPolicy, w weekly, o Observed) (wish, weekly) {
	zone, err := schedule.Zone(p.TimeZone)
	if err != nil {
		return fails(reasons.ScheduleInvalid, fmt.Sprintf("%v.", err)), w
	}
	expects := func(w weekly, hour int) bool {
		_, expected := expectation(p, w, hour)
		return expected
	}
	w = w.remember(now, zone, o, expects)

	lead := leadOf(p, o)
	this, ahead := hourShown(now, zone), hourShown(now.Add(lead), zone)
	players, expected := expectation(p, w, hourOfWeek(this))
	from := this
	awakeUntil := hourEnds(now, zone)
	if more, then := expectation(p, w, hourOfWeek(ahead)); then {
		awakeUntil = hourEnds(now.Add(lead), zone)
		if !expected || more > players {
			players, expected, from = more, true, ahead
		}
	}
	again := nextHour(now, lead, zone)
	if !expected {
		r := rests(reasons.NobodyExpected, nobody(p, w, ahead)+score(w))
		if !learnt(p, w) {
			r.reason = reasons.ForecastLearning
		}
		r.again = again
		return r, w
	}
	replicas := int32(1)
	if w.Room > 0 {
		replicas = max(1, bounded(scaled(players, 1, int64(w.Room))))
	}
	r := wants(replicas, reasons.PlayersExpected, fmt.Sprintf("%d players are expected in the hour from %s.%s", players, from.Format("Mon 15:04"), score(w)))
	r.again = again
	if p.Wake {
		r.keepAwake = awakeUntil
	}
	return r, w
}

// expectation is how many players are expected in an hour of the week, if anybody is.
func expectation(p *v1alpha1.ForecastPolicy, w weekly, hour int) (players int64, expected bool) {
	remembered, played, players := w.usual(hour, or(p.Percentile, 80))
	if remembered < minWeeks(p) {
		return 0, false
	}
	return max(1, players), 100*played >= int(or(p.MinConfidencePercent, 50))*remembered
}

func minWeeks(p *v1alpha1.ForecastPolicy) int { return int(or(p.MinWeeks, 2)) }

func leadOf(p *v1alpha1.ForecastPolicy, o Observed) time.Duration {
	switch {
	case p.Lead != nil:
		return max(0, p.Lead.Duration)
	case o.BootTime > 0:
		return max(leastLead, min(2*min(o.BootTime, mostLead), mostLead))
	}
	return defaultLead
}

// nextHour is when the next hour begins, or its lead does. A lead is no longer than an hour.
func nextHour(now time.Time, lead time.Duration, zone *time.Location) time.Time {
	begins := hourEnds(now, zone)
	if early := begins.Add(-lead); early.After(now) {
		return early
	}
	return begins
}

// learnt reports whether any hour of the week is remembered well enough.
func learnt(p *v1alpha1.ForecastPolicy, w weekly) bool {
	for hour := range hoursOfWeek {
		if remembered, _, _ := w.usual(hour, 100); remembered >= minWeeks(p) {
			return true
		}
	}
	return false
}

// nobody is a sentence about when somebody is expected next.
func nobody(p *v1alpha1.ForecastPolicy, w weekly, after time.Time) string {
	for i := range hoursOfWeek {
		hour := after.Add(time.Duration(i+1) * time.Hour)
		if players, expected := expectation(p, w, hourOfWeek(hour)); expected {
			return fmt.Sprintf("Nobody is expected before %s, and %d players then.", hour.Format("Mon 15:04"), players)
		}
	}
	if !learnt(p, w) {
		return fmt.Sprintf("It learns when players come, for %d weeks at least.", minWeeks(p))
	}
	return "Nobody is expected at any hour of the week."
}

// score is a sentence about how often it was right, with a space before it.
func score(w weekly) string {
	all := int(w.Right) + int(w.Wrong)
	if all == 0 {
		return ""
	}
	return fmt.Sprintf(" It was right about %d of %d hours in which somebody was expected or came.", w.Right, all)
}
