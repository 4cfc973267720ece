package sim

import (
	"math"
	"time"
)

// Players per hour that come at each full hour, by the clocks of the zone; between two of them
// the rate goes evenly. They play for about 50 minutes, so that a rate of 60 has about 50 play.
var (
	workday = day{
		2, 0.6, 0.1, 0, 0, 0, 0.1, 0.3, 0.4, 0.4, 0.4, 0.6,
		1, 2, 5, 10, 18, 28, 42, 58, 62, 45, 22, 8,
	}
	freeDay = day{
		10, 5, 2, 0.5, 0.1, 0, 0, 0.2, 1, 3, 8, 14,
		18, 25, 33, 40, 46, 54, 65, 82, 85, 65, 40, 20,
	}
)

type day [24]float64

const (
	// changes is how much a day's players differ from the usual: the standard deviation of the
	// logarithm.
	changes = 0.2
	// The usual time of play is playsFor, and the spread is that of the logarithm.
	playsFor, playsSpread = 36 * time.Minute, 0.8
	playsLeast, playsMost = 2 * time.Minute, 6 * time.Hour
	// crowd is how many more come in a flash crowd, and crowdWithin their mean delay.
	crowd, crowdWithin = 80, 8 * time.Minute
	// releaseDraws is how many times as many come after a release, until the day is over.
	releaseDraws = 1.6
	// outage is for how long the webhook doesn't answer.
	outage = 3 * time.Hour
)

// rate is how many players an hour usually come at a local time.
func rate(local time.Time) float64 {
	hour := local.Truncate(time.Hour) // the zone's clocks are full hours ahead
	share := local.Sub(hour).Hours()
	return hourly(local)*(1-share) + hourly(hour.Add(time.Hour))*share
}

// hourly is the rate of an hour. Friday's evening is as before a free day, and Sunday's as before a
// workday.
func hourly(local time.Time) float64 {
	free := false
	switch local.Weekday() {
	case time.Friday:
		free = local.Hour() >= 18
	case time.Saturday:
		free = true
	case time.Sunday:
		free = local.Hour() < 18
	default:
	}
	if free {
		return freeDay[local.Hour()]
	}
	return workday[local.Hour()]
}

// highestRate bounds the rate of all times.
func highestRate() float64 {
	highest := 0.0
	for h := range workday {
		highest = max(highest, workday[h], freeDay[h])
	}
	return highest * releaseDraws * math.Exp(4*changes)
}
