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
	// bootRetry is the least time between two probes while the game hasn't answered yet: somebody
	// may be waiting for just that. The longer the game boots the longer it is, up to retry.
	bootRetry = 20 * time.Millisecond
	// bootPart is how long the game has booted, to the time between two probes.
	bootPart = 400
	// retry is the least time between two while the operator waits for the game's answer to a
	// shutdown.
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
	var boots time.Time // since when it hasn't answered
	for ctx.Err() == nil {
		before := l.Game.Snapshot()
		began := time.Now()
		if before.Answered {
			boots = time.Time{}
		} else if boots.IsZero() {
			boots = began
		}
		failing = l.ask(ctx, before, began, failing)
		l.pause(ctx, before, began, whileBooting(began.Sub(boots)))
	}
	return nil
}

// whileBooting is the time between two probes of a game that has booted for a time.
func whileBooting(booted time.Duration) time.Duration {
	return min(max(bootRetry, booted/bootPart), retry)
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
			l.Log.Info("The game doesn't tell its probe how many play", "reason", err.Error())
		}
		if probe.Answered(err) {
			l.Game.Uncounted(began)
		} else {
			l.Game.Unanswered(began)
		}
		return true
	}
	if !before.Answered {
		l.Log.Info("The game answered its first probe")
	}
	l.Game.Answered(began, status.Players, status.Capacity)
	return false
}

// pause waits until it is time to probe again, which is at once when the operator drains the
// game, or has it looked at. A game that hasn't answered yet is probed again after unanswered.
func (l *Loop) pause(ctx context.Context, before game.Snapshot, began time.Time, unanswered time.Duration) {
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
		switch {
		case !now.Answered:
			interval = min(interval, unanswered)
		case now.LastAnswer.Shutdown && !now.ShutdownSeen && !now.Hidden:
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
