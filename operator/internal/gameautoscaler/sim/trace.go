package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// Weeks are how many are replayed.
	Weeks = 8
	// Learning is how many of them pass before any is counted, for every policy alike: an owner
	// who compares policies does so once they are in use.
	Learning = 2
	// Zone is whose clocks players live by. They are put forward at the end of the third week.
	Zone = "Europe/Berlin"

	week = 7 * 24 * time.Hour
)

// Player is somebody who comes and, once there is room, plays for a time.
type Player struct {
	// At is when they come, since the trace began.
	At time.Duration
	// Plays is for how long they play.
	Plays time.Duration
}

// Trace is who comes, and what happens. Times are since its begin.
type Trace struct {
	Seed    uint64
	Begin   time.Time
	Length  time.Duration
	Counted time.Duration // from then on it counts
	Players []Player      // in the order in which they come
	// Crowd is when a flash crowd begins, Release when a new version is, and from OutageFrom to
	// OutageTo no webhook answers.
	Crowd, Release, OutageFrom, OutageTo time.Duration
	// Peak is how many would play at the same time at most if nobody ever waited.
	Peak int
}

// Generate makes a trace of some weeks from a Monday on. Players come by a Poisson process whose
// rate follows the hour of the week, with a factor for each day. In a week that counts there are,
// at times of chance,
//
//   - a flash crowd, on any day from 10:00 to 22:00;
//   - a release, on a Tuesday, Wednesday or Thursday at 17:00, with more players until midnight;
//   - an outage of the webhook, in an evening from 18:00 or 19:00 on.
//
// The same seed, weeks and learning give the same trace.
func Generate(seed uint64, weeks, learning int) (Trace, error) {
	zone, err := time.LoadLocation(Zone)
	if err != nil {
		return Trace{}, fmt.Errorf("find the players' time zone: %w", err)
	}
	begin := time.Date(2026, time.March, 9, 0, 0, 0, 0, zone)
	since := func(days, hour int) time.Duration {
		return begin.AddDate(0, 0, days).Sub(begin) + time.Duration(hour)*time.Hour
	}
	t := Trace{Seed: seed, Begin: begin, Length: since(7*weeks, 0), Counted: since(7*learning, 0)}

	chance := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it is to be repeated
	countedDay := func() int { return 7*learning + chance.IntN(7*(weeks-learning)) }
	t.Crowd = since(countedDay(), 10+chance.IntN(12)) + time.Duration(chance.IntN(60))*time.Minute
	t.Release = since(7*(learning+chance.IntN(weeks-learning))+1+chance.IntN(3), 17)
	t.OutageFrom = since(countedDay(), 18+chance.IntN(2))
	t.OutageTo = t.OutageFrom + outage

	factors := make([]float64, 7*weeks)
	for i := range factors {
		factors[i] = math.Exp(changes * min(4, chance.NormFloat64()))
	}
	highest := highestRate()
	for at := time.Duration(0); ; {
		at += time.Duration(chance.ExpFloat64() / highest * float64(time.Hour))
		if at >= t.Length {
			break
		}
		local := begin.Add(at)
		r := rate(local) * factors[int(local.Sub(begin)/(24*time.Hour))]
		if at >= t.Release && local.YearDay() == begin.Add(t.Release).YearDay() {
			r *= releaseDraws
		}
		if chance.Float64()*highest < r {
			t.Players = append(t.Players, Player{at, plays(chance)})
		}
	}
	for range crowd {
		at := t.Crowd + time.Duration(chance.ExpFloat64()*float64(crowdWithin))
		if at < t.Length {
			t.Players = append(t.Players, Player{at, plays(chance)})
		}
	}
	slices.SortStableFunc(t.Players, func(a, b Player) int { return int(a.At - b.At) })
	t.Peak = peak(t.Players)
	return t, nil
}

// plays is for how long somebody plays: most for half an hour, and some for an evening.
func plays(chance *rand.Rand) time.Duration {
	d := time.Duration(float64(playsFor) * math.Exp(playsSpread*chance.NormFloat64()))
	return min(max(d, playsLeast), playsMost)
}

// peak is how many play at the same time at most.
func peak(players []Player) int {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, p := range players {
		changes = append(changes, change{p.At, 1}, change{p.At + p.Plays, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.by - b.by
	})
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}
