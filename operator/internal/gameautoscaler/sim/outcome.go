package sim

import (
	"slices"
	"time"
)

// Outcome is what became of a trace under a policy.
type Outcome struct {
	trace *Trace
	// Counted is of the weeks that count, and All of all of them.
	Counted, All Tally
	// steps are how many Servers there were, from when on.
	steps []step
	// ended is for how long each player waited; -1 where that isn't over, or never began.
	waited []time.Duration
}

type step struct {
	at      time.Duration
	servers int
}

// Tally is what a policy cost, and what players had of it.
type Tally struct {
	// Ran is how long Servers ran, all together: from their creation, with boots and drains.
	Ran time.Duration
	// Players is how many came, and GaveUp how many of them never played.
	Players, GaveUp int
	// Waits are for how long those waited who did, the shortest first.
	Waits []time.Duration
	// Scaled is how often the number of Servers was changed, with wakes and sleeps.
	Scaled int
}

func newOutcome(t *Trace) *Outcome {
	o := &Outcome{trace: t, waited: make([]time.Duration, len(t.Players))}
	for i := range o.waited {
		o.waited[i] = -1
	}
	for _, p := range t.Players {
		o.All.Players++
		if p.At >= t.Counted {
			o.Counted.Players++
		}
	}
	return o
}

// servers notes how many there are from now on.
func (o *Outcome) servers(now time.Duration, n int) { o.steps = append(o.steps, step{now, n}) }

// ran adds a Server's life.
func (o *Outcome) ran(from, to time.Duration) {
	o.All.Ran += to - from
	o.Counted.Ran += max(0, to-max(from, o.trace.Counted))
}

func (o *Outcome) scaled(now time.Duration) {
	o.All.Scaled++
	if now >= o.trace.Counted {
		o.Counted.Scaled++
	}
}

// waits ends a player's wait, who plays from now on or has given up.
func (o *Outcome) waits(player int, now time.Duration, gaveUp bool) {
	at := o.trace.Players[player].At
	o.waited[player] = now - at
	o.All.waits(now-at, gaveUp)
	if at >= o.trace.Counted {
		o.Counted.waits(now-at, gaveUp)
	}
}

func (t *Tally) waits(d time.Duration, gaveUp bool) {
	if gaveUp {
		t.GaveUp++
	}
	if d > 0 {
		i, _ := slices.BinarySearch(t.Waits, d)
		t.Waits = slices.Insert(t.Waits, i, d)
	}
}

// percentile is the wait that so many percent of those who waited had at most.
func (t *Tally) percentile(percent int) time.Duration {
	if len(t.Waits) == 0 {
		return 0
	}
	return t.Waits[max(0, (len(t.Waits)*percent+99)/100-1)]
}
