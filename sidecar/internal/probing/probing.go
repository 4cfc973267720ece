// Package probing says when a game is asked for its players, and tells the Game
// what came of it. How to ask is probe's.
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
	// retry is the time between two probes while the game hasn't answered yet:
	// somebody may be waiting for just that. It is the least between two, too, while
	// the operator waits for what the game says to a shutdown.
	retry = 250 * time.Millisecond
	// Bounds of how long a probe waits for its answer. A game that boots may
	// swallow a question, and is asked again the sooner.
	maxWait  = 5 * time.Second
	bootWait = time.Second
)

// Loop asks a game again and again.
type Loop struct {
	Prober  probe.Prober
	Game    *game.Game
	Period  time.Duration
	Metrics *metrics.Metrics
	Log     logr.Logger
}

// Run asks until the context ends, never twice at once: every period, at once when
// the operator tells to drain, and often while the game boots or the operator waits
// for what it says to a shutdown.
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

// ask asks once and says whether that failed, as failing says of the time before.
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

// pause waits until it is time to ask again, which is at once when the operator
// drains the game.
func (l *Loop) pause(ctx context.Context, before game.Snapshot, began time.Time) {
	drained := before.Told.Drain
	for {
		now, changed := l.Game.Watch()
		if now.Told.Drain && !drained {
			return
		}
		drained = now.Told.Drain
		interval := l.Period
		if !now.Answered || (now.Told.Shutdown && !now.ShutdownSeen) {
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
