// Package probing decides when a game is probed for its players, and passes the result to the
// Game. Package probe does the probing.
package probing

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/metrics"
	"dormouse.dev/dormouse/sidecar/internal/probe"
)

const (
	// retry is the time between two probes while the game hasn't answered yet: somebody may be
	// waiting for just that. It is also the least time between two while the operator waits for
	// the game's answer to a shutdown.
	retry = 250 * time.Millisecond
	// Bounds of how long a probe waits for its answer. A game that starts may lose a question,
	// and is asked again earlier then.
	maxWait  = 5 * time.Second
	bootWait = time.Second
)

// Loop probes a game again and again.
type Loop struct {
	Prober  probe.Prober
	Game    *game.Game
	Period  time.Duration
	Metrics *metrics.Metrics
	Log     logr.Logger
}

// Run probes until the context ends, never twice at once: every period, at once when the
// operator orders to drain or to look, and often while the game starts or the operator waits for
// its answer to a shutdown.
func (l *Loop) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		before := l.Game.Snapshot()
		began := time.Now()
		failing = l.ask(ctx, before, began, failing)
		l.pause(ctx, before, began)
	}
	return nil
}

// ask probes once and reports whether that failed; failing is the previous result.
func (l *Loop) ask(ctx context.Context, before game.Snapshot, began time.Time, failing bool) (fails bool) {
	patience := bootWait
	if before.Answered {
		patience = min(l.Period, maxWait)
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, err := l.Prober.Query(asking)
	if ctx.Err() != nil {
		return failing
	}
	l.Metrics.Probed(err == nil)
	if err != nil {
		if before.Answered && !failing {
			l.Log.Info("The game doesn't answer its probe", "reason", err.Error())
		}
		l.Game.Unanswered(began)
		return true
	}
	if !before.Answered {
		l.Log.Info("The game answered its first probe")
	}
	l.Game.Answered(began, status.Players, status.Capacity)
	return false
}

// pause waits until it is time to probe again, which is at once when the operator drains the
// game, or has it looked at.
func (l *Loop) pause(ctx context.Context, before game.Snapshot, began time.Time) {
	drained := before.LastAnswer.Drain
	for {
		now, changed := l.Game.Watch()
		if now.LastAnswer.Drain && !drained {
			return
		}
		if look := now.LastAnswer.Look; look != "" && look != before.LastAnswer.Look {
			return
		}
		drained = now.LastAnswer.Drain
		interval := l.Period
		if !now.Answered || (now.LastAnswer.Shutdown && !now.ShutdownSeen) {
			interval = min(interval, retry)
		}
		timer := time.NewTimer(time.Until(began.Add(interval)))
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
