package game

import (
	"fmt"
	"maps"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// goneAfter is how long an Unhealthy game that says nothing has players: whoever
// played has been thrown out by then.
const goneAfter = 5 * time.Minute

// Config is what the Server's spec says of its game.
type Config struct {
	// Readiness says when the game takes players.
	Readiness v1alpha1.ServerReadiness
	// Unreported is what holds for a game that has told neither its state nor its
	// players nor a permission, and whose probe has had no answer.
	Unreported v1alpha1.DeletionPermission
	// Capacity is how many may play while nobody says otherwise; 0: not known.
	Capacity int32
	// Probed reports whether the game is asked for its players.
	Probed bool
	// Health says when a game is taken for broken.
	Health Health
}

// Health says when a game is taken for broken.
type Health struct {
	InitialDelay     time.Duration
	Period           time.Duration
	FailureThreshold int
	Disabled         bool
}

// Snapshot is all that is known of a game at a time. It shares nothing with the
// Game, but several callers may have the same: it is read-only.
type Snapshot struct {
	// Game is what is reported of it.
	Game reportapi.Game
	// DeletionAllowed is whether its Server may be deleted.
	DeletionAllowed bool
	// ShutdownSeen reports whether DeletionAllowed was found after the operator told to
	// shut down.
	ShutdownSeen bool
	// Answered reports whether the probe has been answered by the process that runs.
	Answered bool
	// Restored reports whether the operator has told what was before this sidecar
	// started. Before that nothing but a wish for it is worth a report.
	Restored bool
	// Capacity is how many may play; 0: not known.
	Capacity int32
	// NotReady says in a sentence why the game should get no players; empty: it
	// should.
	NotReady string
	// Told is what the operator told last; zero before Restored.
	Told reportapi.Answer
	// Restarts is how many times the game's container was seen to start again.
	Restarts int
}

// core is all that is known, and decides. Its methods change nothing but it.
type core struct {
	config Config
	began  time.Time
	words  words

	counters            map[string]v1alpha1.Counter
	lists               map[string]v1alpha1.List
	labels, annotations map[string]string

	restored bool
	// left are players who left before that, and anew says that the game said how
	// many play, which makes an end of who played before.
	left map[string]bool
	anew bool
	told reportapi.Answer
	// toldShutdown is when the operator first told to shut down; zero: it didn't.
	toldShutdown time.Time
	// started is when the game's container started last, as far as was told.
	started time.Time
	// stopped is when the operator first told that it doesn't run.
	stopped  time.Time
	restarts int
	// probed is when the last probe that has ended began, and answered when the last
	// one did that had an answer.
	probed, answered time.Time
}

func (c *core) phase(now time.Time) phase {
	p := c.words.phase.value
	if p.state == v1alpha1.GameReserved && p.until != nil && !now.Before(*p.until) {
		return phase{state: v1alpha1.GameReady}
	}
	return p
}

// unwell is when the game came to be Unhealthy, and why; the time is zero if it
// isn't. It may lie ahead: a game that stays silent will be Unhealthy then.
func (c *core) unwell() (since time.Time, message string) {
	h := c.config.Health
	if h.Disabled {
		return time.Time{}, ""
	}
	begin := c.began
	if !c.started.IsZero() {
		begin = c.started
	}
	judged := begin.Add(h.InitialDelay)
	first := func(at time.Time, why string) {
		if at.Before(judged) {
			at = judged
		}
		if since.IsZero() || at.Before(since) {
			since, message = at, why
		}
	}
	w := &c.words
	if w.broken.said() {
		since, message = w.broken.value.since, w.broken.value.message
	}
	if w.answer.said() && w.unanswered >= h.FailureThreshold {
		first(w.failing, fmt.Sprintf("the game left %d probes in a row unanswered, after it had answered before", h.FailureThreshold))
	}
	if !w.ping.IsZero() {
		silence := time.Duration(h.FailureThreshold) * h.Period
		first(w.ping.Add(silence), fmt.Sprintf("the game sent no health ping for %s, after it had sent some", silence))
	}
	return since, message
}

// running reports whether the game's container runs. What the game says proves that
// it does before the operator has seen it.
func (c *core) running() bool {
	return c.stopped.IsZero() || c.words.last.After(c.stopped)
}

func (c *core) state(now time.Time) (v1alpha1.GameState, string) {
	p := c.phase(now)
	if p.state == v1alpha1.GameShutdown {
		return p.state, ""
	}
	if since, message := c.unwell(); !since.IsZero() && !now.Before(since) {
		return v1alpha1.GameUnhealthy, message
	}
	switch {
	case !c.running():
		return v1alpha1.GameStarting, ""
	case p.state == v1alpha1.GameAllocated, p.state == v1alpha1.GameReserved:
		return p.state, ""
	case c.open(now):
		return v1alpha1.GameReady, ""
	}
	return v1alpha1.GameStarting, ""
}

// open reports whether what readiness waits for has come.
func (c *core) open(now time.Time) bool {
	switch {
	case c.config.Readiness == v1alpha1.ServerReadinessSDK:
		p := c.phase(now).state
		return p == v1alpha1.GameReady || p == v1alpha1.GameAllocated || p == v1alpha1.GameReserved
	case c.config.Probed:
		return c.words.answer.said()
	}
	return true
}

// capacity is how many may play; 0: not known.
func (c *core) capacity() int32 {
	switch {
	case c.words.capacity.said():
		return c.words.capacity.value
	case c.words.answer.value.capacity > 0:
		return c.words.answer.value.capacity
	case c.restored:
		return c.told.Server.Capacity
	}
	return c.config.Capacity
}

// players is how many play: by the game's own word or else by the probe's.
func (c *core) players() *v1alpha1.PlayersStatus {
	w := &c.words
	switch {
	case !w.tracked.IsZero() && !w.tracked.Before(w.players.at):
		ids := w.ids()
		current := int32(len(ids)) //nolint:gosec // at most twice MaxPlayerIDs
		return &v1alpha1.PlayersStatus{Current: current, Capacity: c.capacity(), IDs: ids[:min(len(ids), reportapi.MaxPlayerIDs)]}
	case w.players.said():
		return &v1alpha1.PlayersStatus{Current: w.players.value, Capacity: c.capacity()}
	case w.answer.said():
		return &v1alpha1.PlayersStatus{Current: w.answer.value.current, Capacity: c.capacity()}
	case w.capacity.said() && !c.config.Probed:
		// It tracks its players, and none has come yet.
		return &v1alpha1.PlayersStatus{Capacity: c.capacity()}
	}
	return nil
}

// reported reports whether anything is known by which a deletion could be judged. A
// ping, a label or a counter is nothing of that.
func (c *core) reported() bool {
	return !c.words.reported.IsZero() || c.players() != nil
}

// silent is when an Unhealthy game has been silent for so long that nobody can be
// playing; zero if it is well.
func (c *core) silent() time.Time {
	since, _ := c.unwell()
	if since.IsZero() {
		return time.Time{}
	}
	if c.words.last.After(since) {
		since = c.words.last
	}
	return since.Add(goneAfter)
}

// deserted reports whether nobody can be playing, whatever was said.
func (c *core) deserted(now time.Time) bool {
	gone := c.silent()
	return !gone.IsZero() && !now.Before(gone)
}

// restsOnProbe reports whether what the probe was answered decides over the deletion,
// because the game itself has said nothing that comes before it.
func (c *core) restsOnProbe(now time.Time) bool {
	w := &c.words
	switch c.phase(now).state {
	case v1alpha1.GameShutdown, v1alpha1.GameAllocated, v1alpha1.GameReserved:
		return false
	case v1alpha1.GameStarting, v1alpha1.GameReady, v1alpha1.GameUnhealthy:
	}
	return w.answer.said() && !w.permission.said() && !w.players.said() && w.tracked.IsZero()
}

// shutdownSeen reports whether deletionAllowed was found after the operator told to
// shut down. A probe that fails is no answer to that where one that didn't was
// what counted: somebody may have come since.
func (c *core) shutdownSeen(now time.Time) bool {
	switch {
	case !c.told.Shutdown:
		return false
	case !c.config.Probed || !c.answered.Before(c.toldShutdown):
		return true
	case c.probed.Before(c.toldShutdown):
		return false
	}
	return !c.restsOnProbe(now) || c.deserted(now)
}

func (c *core) deletionAllowed(now time.Time) bool {
	if c.deserted(now) {
		return true
	}
	if c.words.permission.said() {
		return c.words.permission.value == v1alpha1.DeletionAllowed
	}
	switch c.phase(now).state {
	case v1alpha1.GameShutdown:
		return true
	case v1alpha1.GameAllocated, v1alpha1.GameReserved:
		return false
	case v1alpha1.GameStarting, v1alpha1.GameReady, v1alpha1.GameUnhealthy:
	}
	if players := c.players(); players != nil {
		// One lost datagram is no reason to doubt the count, but several are.
		h := c.config.Health
		doubtful := c.restsOnProbe(now) && !h.Disabled && c.words.unanswered >= h.FailureThreshold
		return players.Current == 0 && !doubtful
	}
	if c.reported() {
		return true
	}
	return c.config.Unreported != v1alpha1.DeletionDenied
}

// notReady says why the game should get no players.
func (c *core) notReady(now time.Time) string {
	alone := c.config.Readiness != v1alpha1.ServerReadinessSDK && !c.config.Probed
	state, message := c.state(now)
	switch {
	case c.told.Shutdown:
		return "the Server is being deleted or stopped"
	case c.told.Drain:
		return "the Server gets no new players"
	case !c.restored && !alone:
		return "the operator hasn't answered yet since this sidecar started"
	case state == v1alpha1.GameShutdown:
		return "the game asked for its own end"
	case state == v1alpha1.GameUnhealthy:
		return message
	case !c.running():
		return "the game's container doesn't run"
	case !c.open(now) && c.config.Readiness == v1alpha1.ServerReadinessSDK:
		return "the game hasn't called Ready"
	case !c.open(now):
		return "the game hasn't answered a probe"
	case c.told.SkipFull && c.full():
		return "as many play as may"
	}
	return ""
}

// full reports whether there is no room for another player.
func (c *core) full() bool {
	p := c.players()
	return p != nil && p.Capacity > 0 && p.Current >= p.Capacity
}

func (c *core) snapshot(now time.Time) Snapshot {
	state, message := c.state(now)
	s := Snapshot{
		Game: reportapi.Game{
			State: state, Message: message,
			Reported:   c.reported(),
			Permission: c.words.permission.value,
			Players:    c.players(),
			Labels:     maps.Clone(c.labels), Annotations: maps.Clone(c.annotations),
		},
		DeletionAllowed: c.deletionAllowed(now),
		ShutdownSeen:    c.shutdownSeen(now),
		Answered:        c.words.answer.said(),
		Restored:        c.restored,
		Capacity:        c.capacity(),
		NotReady:        c.notReady(now),
		Told:            c.told,
		Restarts:        c.restarts,
	}
	if state == v1alpha1.GameReserved {
		s.Game.ReservedUntil = c.words.phase.value.until
	}
	s.Game.Counters, s.Game.Lists = c.kept()
	return s
}

// next is when the snapshot may change by itself; zero: it won't.
func (c *core) next(now time.Time) time.Time {
	var next time.Time
	unwell, _ := c.unwell()
	for _, t := range []time.Time{unwell, c.silent()} {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if p := c.phase(now); p.state == v1alpha1.GameReserved && p.until != nil && (next.IsZero() || p.until.Before(next)) {
		next = *p.until
	}
	return next
}
