package game

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// failedMessage is why a game that said so is Unhealthy. Another sidecar knows by it what was meant.
const failedMessage = "the game says that it has failed"

// Healthy takes the game's word that it is well, which takes Failed back. Unlike with Ping, no further
// one is expected. Where the game is to say when it takes players, its first one says that, too.
func (g *Game) Healthy() {
	by := sign
	if g.core.config.Readiness == v1alpha1.ServerReadinessSDK {
		by = report
	}
	_ = g.do(by, func(c *core, now time.Time) error {
		w := &c.words
		w.well, w.failed, w.broken = now, word[brokenness]{}, word[brokenness]{}
		if !w.ping.IsZero() {
			w.ping = now
		}
		if c.restored {
			c.readyIfWell()
		} // else the phase from before this sidecar started comes first
		return nil
	})
}

// readyIfWell has a game take players that has said that it is well, where it is to say when and has
// said nothing else.
func (c *core) readyIfWell() {
	w := &c.words
	if c.config.Readiness == v1alpha1.ServerReadinessSDK && !w.phase.said() && !w.well.IsZero() {
		w.phase = say(phase{state: v1alpha1.GameReady}, w.well)
	}
}

// Failed takes the game's word that it is broken, until Healthy. It is Unhealthy whatever its pings and
// probes say.
func (g *Game) Failed() {
	_ = g.do(sign, func(c *core, now time.Time) error {
		if !c.words.failed.said() {
			c.words.failed = say(brokenness{failedMessage, now}, now)
		}
		return nil
	})
}

// EndWhenEmpty asks for the game's own end once nobody plays: until then it gets no new players. False
// takes that back, which is TooLate once the operator has ordered to shut down.
func (g *Game) EndWhenEmpty(wanted bool) error {
	return g.do(report, func(c *core, now time.Time) error {
		if !wanted && c.lastAnswer.Shutdown {
			return refuse(TooLate, "the Server is being deleted or stopped already")
		}
		if wanted {
			c.askForEnd()
		}
		c.words.leaving = say(wanted, now)
		return nil
	})
}

// askForEnd notes, before the game's end is asked for, whether the operator has ordered that.
func (c *core) askForEnd() {
	w := &c.words
	switch {
	case !c.lastAnswer.Shutdown:
		c.ordered = false
	case !w.leaving.value && w.phase.value.state != v1alpha1.GameShutdown:
		c.ordered = true
	}
}

// endsByItself reports whether the game's end has come, which it asked for without an order.
func (c *core) endsByItself(now time.Time) bool {
	return c.phase(now).state == v1alpha1.GameShutdown && !c.ordered
}

// outlive has a game end though its process, which asked for that, is gone: whoever acts by it may not have
// seen it yet. That players don't matter was said of the players of that process, so if there are some on the
// next one it ends once they have left.
func (c *core) outlive(now time.Time) {
	if w := &c.words; w.phase.value.state != v1alpha1.GameShutdown && !w.leaving.said() {
		w.leaving, w.reported = say(true, now), now
	}
}

// over reports whether a game that is to end once nobody plays is to end now. A game that doesn't say
// how many play is empty unless it is Allocated.
func (c *core) over(p phase) bool {
	w := &c.words
	if !w.leaving.value {
		return false
	}
	players := c.players()
	if players == nil {
		return p.state != v1alpha1.GameAllocated && p.state != v1alpha1.GameReserved
	}
	return players.Current == 0 && (!c.onlyProbed() || !c.doubtful())
}

// onlyProbed reports whether how many play is known by the probe alone.
func (c *core) onlyProbed() bool {
	return c.words.answer.said() && !c.countsPlayers()
}

// countsPlayers reports whether the game itself has said how many play.
func (c *core) countsPlayers() bool {
	return c.words.players.said() || !c.words.tracked.IsZero()
}

// doubtful reports whether the last count may not hold any more: so many probes were unanswered since, or
// an answer had none.
func (c *core) doubtful() bool {
	h, w := c.config.Health, &c.words
	return !w.hidden.IsZero() || !h.Disabled && (w.unanswered >= h.FailureThreshold || w.stale)
}
