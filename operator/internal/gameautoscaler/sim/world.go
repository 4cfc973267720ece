package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
)

const (
	// room is how many players a Server has room for.
	room = 20
	// A Server takes so long to get Ready.
	bootLeast, bootMost = 60 * time.Second, 90 * time.Second
	// sleepAfter is the ElasticService's, by default.
	sleepAfter = 10 * time.Minute
	// patience is for how long a player waits who finds no room.
	patience = 5 * time.Minute
	// lag is how long it takes until an autoscaler sees a change.
	lag = 5 * time.Second
	// polls is how far apart the questions to a webhook are, which is sync.interval.
	polls = 30 * time.Second
	// bootsSeen is of how many Servers the usual time of a boot is.
	bootsSeen = 10
)

// world is the game, under one policy.
type world struct {
	trace   *Trace
	policy  *Policy
	chance  *rand.Rand
	decider *decider // nil where there is no autoscaler
	peak    int32    // how many Servers the peak needs

	now     time.Duration
	events  events
	desired int32
	servers []*server
	made    int
	boots   []time.Duration // the last ones

	waiting []int // players, in the order in which they came
	playing int
	// idleSince is when somebody last came or left, or the game woke.
	idleSince, keepAwake time.Duration
	// decideAt and restAt are when the next look of the autoscaler and the ElasticService is due;
	// events of another time are of looks that became needless.
	decideAt, restAt time.Duration
	answer           planner.Answer
	asked            time.Duration // 0: not since it woke

	outcome *Outcome
	// watch, for tests, sees the world after each event.
	watch func(*world, event)
}

// Run replays a trace under a policy.
func Run(ctx context.Context, t *Trace, p *Policy) (*Outcome, error) { return run(ctx, t, p, nil) }

func run(ctx context.Context, t *Trace, p *Policy, watch func(*world, event)) (*Outcome, error) {
	w := &world{
		trace: t, policy: p, watch: watch,
		chance:  rand.New(rand.NewPCG(t.Seed, 2)),  //nolint:gosec // it is to be repeated
		peak:    int32((t.Peak + room - 1) / room), //nolint:gosec // it is far from that
		outcome: newOutcome(t),
	}
	if len(p.policies) > 0 {
		w.decider = &decider{spec: p.spec(w.peak)}
		w.decideIn(time.Second)
	}
	if p.alwaysOn {
		w.desired = w.peak
		for range w.peak {
			w.create().ready = true
		}
	}
	if len(t.Players) > 0 {
		w.events.add(event{at: t.Players[0].At, kind: arrives})
	}
	w.events.add(event{at: t.Release, kind: releases})
	for n := 0; w.events.Len() > 0; n++ {
		if n%10000 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e := w.events.next()
		if e.at > t.Length {
			break
		}
		w.now = e.at
		w.happens(e)
		if w.watch != nil {
			w.watch(w, e)
		}
	}
	w.now = t.Length
	for _, s := range w.servers {
		w.outcome.ran(s.made, w.now)
	}
	for _, player := range w.waiting {
		w.outcome.waits(player, w.now, false)
	}
	return w.outcome, nil
}

func (w *world) happens(e event) {
	switch e.kind {
	case arrives:
		if next := e.player + 1; next < len(w.trace.Players) {
			w.events.add(event{at: w.trace.Players[next].At, kind: arrives, player: next})
		}
		w.comes(e.player)
	case leaves:
		w.playing--
		e.server.players--
		w.idleSince = w.now
		if e.server.draining && e.server.players == 0 {
			w.remove(e.server)
		}
		w.admitWaiting()
		w.changed()
	case givesUp:
		if i := slices.Index(w.waiting, e.player); i >= 0 {
			w.waiting = slices.Delete(w.waiting, i, i+1)
			w.outcome.waits(e.player, w.now, true)
			w.idleSince = w.now
			w.lookToRest()
		}
	case boots:
		if s := e.server; !s.deleted && !s.ready {
			s.ready = true
			w.boots = append(w.boots, w.now-s.made)
			w.boots = w.boots[max(0, len(w.boots)-bootsSeen):]
			w.admitWaiting()
			w.replace()
			w.changed()
		}
	case decides:
		if e.at == w.decideAt {
			w.decide()
		}
	case rests:
		if e.at == w.restAt {
			w.rest()
		}
	case releases:
		for _, s := range w.servers {
			s.outdated = true
		}
		w.replace()
		w.changed()
	}
}

// comes is when a player comes: one who finds no room waits, and wakes a game that sleeps.
func (w *world) comes(player int) {
	w.idleSince = w.now
	if len(w.waiting) == 0 && w.admit(player) {
		w.changed()
		return
	}
	w.waiting = append(w.waiting, player)
	w.events.add(event{at: w.now + patience, kind: givesUp, player: player})
	if w.desired > 0 {
		return
	}
	if w.decider == nil {
		w.set(w.peak)
	} else {
		w.set(1)
	}
}

// admit lets a player play on any Server that has room.
func (w *world) admit(player int) bool {
	var open []*server
	for _, s := range w.servers {
		if s.hasRoom() {
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		return false
	}
	s := open[w.chance.IntN(len(open))]
	s.players++
	w.playing++
	w.events.add(event{at: w.now + w.trace.Players[player].Plays, kind: leaves, server: s, player: player})
	w.outcome.waits(player, w.now, false)
	return true
}

func (w *world) admitWaiting() {
	for len(w.waiting) > 0 && w.admit(w.waiting[0]) {
		w.waiting = w.waiting[1:]
	}
}

// set asks for another number of Servers.
func (w *world) set(desired int32) {
	w.outcome.scaled(w.now)
	if w.desired == 0 {
		w.idleSince, w.asked = w.now, 0
	}
	w.desired = desired
	w.scale()
	w.changed()
}
