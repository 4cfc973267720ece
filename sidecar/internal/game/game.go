package game

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// maxReservation is far more than any reservation lasts.
const maxReservation = 8760 * time.Hour

// Game is the state of a game. Its methods may be called concurrently; none but Run and AwaitRestored
// blocks.
type Game struct {
	clock clock.Clock

	mu       sync.Mutex
	core     core
	snapshot Snapshot
	changed  chan struct{}
	// armed is when Run next looks; sooner makes it look earlier.
	armed  time.Time
	sooner chan struct{}
}

// New makes a Game without any state.
func New(config Config, clk clock.Clock) *Game {
	g := &Game{
		clock: clk,
		core: core{
			config: config, began: clk.Now(),
			counters: map[string]v1alpha1.Counter{}, lists: map[string]v1alpha1.List{},
			labels: map[string]string{}, annotations: map[string]string{},
		},
		changed: make(chan struct{}),
		sooner:  make(chan struct{}, 1),
	}
	g.snapshot = g.core.snapshot(clk.Now())
	return g
}

// Run applies the passing of time: reservations end, and games that stay silent become
// Unhealthy. It returns when the context ends.
func (g *Game) Run(ctx context.Context) error {
	for {
		g.mu.Lock()
		now := g.clock.Now()
		g.refresh(now)
		g.armed = g.core.next(now)
		next := g.armed
		g.mu.Unlock()

		var fires <-chan time.Time
		stop := func() {}
		if !next.IsZero() {
			timer := g.clock.NewTimer(next.Sub(now))
			fires, stop = timer.C(), func() { timer.Stop() }
		}
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-fires:
		case <-g.sooner:
			stop()
		}
	}
}

// Watch returns the current state, and a channel that is closed when that changes. A slow
// caller gets the newest state and misses those in between.
func (g *Game) Watch() (Snapshot, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refresh(g.clock.Now())
	return g.snapshot, g.changed
}

// Snapshot returns the current state.
func (g *Game) Snapshot() Snapshot {
	s, _ := g.Watch()
	return s
}

// refresh notifies the watchers if the state has changed. The lock is held.
func (g *Game) refresh(now time.Time) {
	s := g.core.snapshot(now)
	if !reflect.DeepEqual(s, g.snapshot) {
		g.snapshot = s
		close(g.changed)
		g.changed = make(chan struct{})
	}
	if next := g.core.next(now); !next.IsZero() && (g.armed.IsZero() || next.Before(g.armed)) {
		select {
		case g.sooner <- struct{}{}:
		default:
		}
	}
}

// voice is what a change implies about the game.
type voice int

const (
	// silence is a change that doesn't come from the game.
	silence voice = iota
	// sign is a change by which the game shows only that it is alive.
	sign
	// report is a change by which the game reports its state, its players or a permission, or
	// answers its probe.
	report
)

// heard is the voice of a call that may change nothing.
func heard(changes bool) voice {
	if changes {
		return sign
	}
	return silence
}

// do makes a change, in the voice of its origin.
func (g *Game) do(by voice, change func(c *core, now time.Time) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	if err := change(&g.core, now); err != nil {
		return err
	}
	if by != silence {
		g.core.words.last = now
	}
	if by == report {
		g.core.words.reported = now
	}
	g.refresh(now)
	return nil
}

// Ready takes the game's report that it takes players. It ends an allocation and a reservation.
func (g *Game) Ready() { g.setPhase(phase{state: v1alpha1.GameReady}) }

// Allocate takes the game's report that it is in use, until Ready.
func (g *Game) Allocate() { g.setPhase(phase{state: v1alpha1.GameAllocated}) }

// Reserve is Allocate for a time, and Ready after it. 0 and less is for ever.
func (g *Game) Reserve(d time.Duration) {
	p := phase{state: v1alpha1.GameReserved}
	if d > 0 {
		until := g.clock.Now().Add(min(d, maxReservation))
		p.until = &until
	}
	g.setPhase(p)
}

// Shutdown asks for the game's own end. Only TakeBackShutdown undoes that: it outlives the process, unless
// the operator ordered it.
func (g *Game) Shutdown() { g.setPhase(phase{state: v1alpha1.GameShutdown}) }

// setPhase sets the phase that the game reports.
func (g *Game) setPhase(p phase) {
	_ = g.do(report, func(c *core, now time.Time) error {
		w := &c.words
		if w.phase.value.state == v1alpha1.GameShutdown {
			return nil
		}
		if p.state == v1alpha1.GameShutdown {
			w.before = w.phase
			c.askForEnd()
		}
		w.phase = say(p, now)
		return nil
	})
}

// TakeBackShutdown undoes Shutdown: the game is in its previous phase again. It is TooLate once
// the operator has ordered to shut down, and Unavailable until that is known.
func (g *Game) TakeBackShutdown() error {
	return g.do(report, func(c *core, now time.Time) error {
		if !c.restored {
			return unavailable()
		}
		if c.lastAnswer.Shutdown {
			return refuse(TooLate, "the Server is being deleted or stopped already")
		}
		c.words.leaving = say(false, now) // an earlier process may have asked for it
		if c.words.phase.value.state == v1alpha1.GameShutdown {
			c.words.phase, c.words.before = c.words.before, word[phase]{}
		}
		return nil
	})
}

// Permit takes the game's own permission for its Server's deletion, or its denial.
func (g *Game) Permit(allowed bool) {
	permission := v1alpha1.DeletionDenied
	if allowed {
		permission = v1alpha1.DeletionAllowed
	}
	_ = g.do(report, func(c *core, now time.Time) error {
		c.words.permission = say(permission, now)
		return nil
	})
}

// Ping takes the game's report that it is well. After the first one it is expected to go on.
func (g *Game) Ping() {
	_ = g.do(sign, func(c *core, now time.Time) error {
		c.words.ping, c.words.broken = now, word[brokenness]{}
		return nil
	})
}

// Answered takes the answer to a probe that was sent at began: how many play, and how many may;
// 0: the answer doesn't have that.
func (g *Game) Answered(began time.Time, current, capacity int) {
	bound := func(n int) int32 { return int32(min(max(n, 0), MaxPlayers)) } //nolint:gosec // within bounds
	_ = g.do(report, func(c *core, now time.Time) error {
		w := &c.words
		w.answer = say(count{bound(current), bound(capacity)}, now)
		w.unanswered, w.failing, w.hidden, w.stale, w.broken = 0, time.Time{}, time.Time{}, false, word[brokenness]{}
		c.probed, c.answered = began, began
		return nil
	})
}

// Uncounted notes that the answer to a probe that was sent at began didn't say how many play: it hides that, or
// can't be read. The game is well, and who played may still do.
func (g *Game) Uncounted(began time.Time) {
	_ = g.do(sign, func(c *core, now time.Time) error {
		c.probed = began
		w := &c.words
		w.unanswered, w.failing, w.hidden, w.broken = 0, time.Time{}, now, word[brokenness]{}
		return nil
	})
}

// Unanswered notes that a probe that was sent at began had no answer. Of those within a period one
// counts, however often the operator has the game looked at.
func (g *Game) Unanswered(began time.Time) {
	_ = g.do(silence, func(c *core, now time.Time) error {
		c.probed = began
		w := &c.words
		if !w.answer.said() {
			// The game may take long to start.
			return nil
		}
		if w.unanswered > 0 && began.Sub(w.counted) < c.config.Health.Period {
			return nil
		}
		w.counted = began
		w.unanswered++
		if w.unanswered == c.config.Health.FailureThreshold {
			w.failing = now
		}
		return nil
	})
}

// TakeAnswer takes the operator's answer.
func (g *Game) TakeAnswer(answer reportapi.Answer) {
	_ = g.do(silence, func(c *core, now time.Time) error {
		c.tell(answer, now)
		return nil
	})
}
