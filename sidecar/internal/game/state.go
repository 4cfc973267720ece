package game

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// goneAfter is how long an Unhealthy game that is silent counts as having players: after that
// they have been disconnected.
const goneAfter = 5 * time.Minute

// Config has the settings of the Server's spec for its game.
type Config struct {
	// Readiness is the setting of when the game takes players.
	Readiness v1alpha1.ServerReadiness
	// Unreported is the permission for a game that has reported neither its state nor its
	// players nor a permission, and whose probe has had no answer. The operator's answer comes
	// before it.
	Unreported v1alpha1.DeletionPermission
	// Capacity is how many may play unless the game reports it; 0: not known.
	Capacity int32
	// Probed reports whether the game is probed for its players.
	Probed bool
	// AfterGame is set where kubelet starts this sidecar after the game.
	AfterGame bool
	// Health has the settings of when a game counts as broken.
	Health Health
}

// Health has the settings of when a game counts as broken.
type Health struct {
	InitialDelay     time.Duration
	Period           time.Duration
	FailureThreshold int
	Disabled         bool
}

// Snapshot is the state of a game at a time. It shares nothing with the Game, but several
// callers may have the same one: it is read-only.
type Snapshot struct {
	// Game is what is reported of the game.
	Game reportapi.Game
	// Memory is what is reported besides, for the sidecar after this one.
	Memory reportapi.Memory
	// DeletionAllowed is whether its Server may be deleted.
	DeletionAllowed bool
	// ShutdownSeen reports whether DeletionAllowed was decided after the operator ordered to
	// shut down, or the game asks for its end because it was ordered once.
	ShutdownSeen bool
	// Looked is the operator's Look if DeletionAllowed was decided after that came, or is false.
	Looked string
	// Answered reports whether the running process has answered the probe.
	Answered bool
	// Hidden reports whether the last probe that it answered didn't say how many play.
	Hidden bool
	// Restored reports whether the operator has sent the state from before this sidecar
	// started. Until then the only report worth sending is a request for it.
	Restored bool
	// Capacity is how many may play; 0: not known.
	Capacity int32
	// NotReady explains in a sentence why the game should get no players; empty: it should.
	NotReady string
	// LastAnswer is the operator's last answer; zero before Restored.
	LastAnswer reportapi.Answer
	// Restarts is how many restarts of the game's container were seen.
	Restarts int
}

// core has all of the state, and decides. Its methods change nothing else.
type core struct {
	config Config
	began  time.Time
	words  words

	counters            map[string]v1alpha1.Counter
	lists               map[string]v1alpha1.List
	labels, annotations map[string]string

	restored bool
	// left are players who left before the state was restored. Anew is set once the game has
	// reported how many play, which replaces the earlier players.
	left       map[string]bool
	anew       bool
	lastAnswer reportapi.Answer
	// shutdownSince is when the operator first ordered to shut down; zero: it didn't. LookSince
	// is when its last Look came.
	shutdownSince, lookSince time.Time
	// ordered is set where the operator had ordered to shut down before the game asked for its end.
	ordered bool
	// started is when the game's container last started, as far as the operator has reported.
	started time.Time
	// stopped is when the operator first reported that it doesn't run.
	stopped  time.Time
	restarts int
	// probed is when the last probe began that has ended, and answered when the last one began
	// that had an answer.
	probed, answered time.Time
}

// said is the phase that the game reported.
func (c *core) said(now time.Time) phase {
	p := c.words.phase.value
	if p.state == v1alpha1.GameReserved && p.until != nil && !now.Before(*p.until) {
		return phase{state: v1alpha1.GameReady}
	}
	return p
}

// phase is the phase that the game is in.
func (c *core) phase(now time.Time) phase {
	p := c.said(now)
	if c.over(p) {
		return phase{state: v1alpha1.GameShutdown}
	}
	return p
}

// unwell is when the game became Unhealthy, and why; the time is zero if it is well. It may be
// in the future: a game that stays silent will be Unhealthy then.
func (c *core) unwell() (since time.Time, message string) {
	h := c.config.Health
	if h.Disabled {
		return time.Time{}, ""
	}
	begin := c.began
	if !c.started.IsZero() {
		begin = c.started
	}
	probesFrom := begin.Add(h.InitialDelay)
	first := func(at time.Time, why string) {
		if at.Before(probesFrom) {
			at = probesFrom
		}
		if since.IsZero() || at.Before(since) {
			since, message = at, why
		}
	}
	w := &c.words
	if w.broken.said() {
		since, message = w.broken.value.since, w.broken.value.message
	}
	if f := w.failed.value; w.failed.said() && (since.IsZero() || f.since.Before(since)) {
		since, message = f.since, f.message
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

// running reports whether the game's container runs. A report of the game shows that before the
// operator has seen it.
func (c *core) running() bool {
	return c.stopped.IsZero() || c.words.last.After(c.stopped)
}

// absent reports whether the operator has seen that the game's process has ended, or can't be started, and
// nothing has come from one since. It sees late that the next one runs. Nobody plays so early on a game that
// says nothing, and before a Pod ends kubelet's own report is looked at.
func (c *core) absent() bool {
	if c.lastAnswer.GameEnded == nil {
		return c.lastAnswer.GameWaits && c.words.last.IsZero()
	}
	ended := c.lastAnswer.GameEnded.Truncate(time.Second)
	// The last words may have come within the second in which it ended.
	return !ended.Before(c.started) && c.words.last.Before(ended.Add(time.Second))
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

// open reports whether the condition of Readiness is met.
func (c *core) open(now time.Time) bool {
	switch {
	case c.config.Readiness == v1alpha1.ServerReadinessSDK:
		return c.phase(now).state.TakesPlayers()
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
		return c.lastAnswer.Server.Capacity
	}
	return c.config.Capacity
}

// players is how many play, by the game's own report or else by the probe's.
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
		// The game tracks its players, and none has joined yet.
		return &v1alpha1.PlayersStatus{Capacity: c.capacity()}
	}
	return nil
}

// reported reports whether anything was reported that a deletion can be decided by. A ping, a
// label or a counter is no such thing.
func (c *core) reported() bool {
	return !c.words.reported.IsZero() || c.players() != nil
}

// silent is when an Unhealthy game has been silent for so long that nobody can be playing; zero
// if it is well.
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

// deserted reports whether nobody can be playing, whatever was reported.
func (c *core) deserted(now time.Time) bool {
	gone := c.silent()
	return !gone.IsZero() && !now.Before(gone)
}

// restsOnProbe reports whether the probe's answer decides about the deletion, because the game
// itself has reported nothing that takes precedence.
func (c *core) restsOnProbe(now time.Time) bool {
	w := &c.words
	switch c.said(now).state {
	case v1alpha1.GameShutdown:
		return false
	case v1alpha1.GameAllocated, v1alpha1.GameReserved:
		if !w.leaving.value {
			return false
		}
	case v1alpha1.GameStarting, v1alpha1.GameReady, v1alpha1.GameUnhealthy:
	}
	return c.onlyProbed() && !w.permission.said()
}

// shutdownSeen reports whether deletionAllowed was decided after the operator ordered to shut
// down. Once the order is taken back, a game that follows it still isn't one that ends by itself.
func (c *core) shutdownSeen(now time.Time) bool {
	if !c.lastAnswer.Shutdown {
		return c.ordered && c.phase(now).state == v1alpha1.GameShutdown
	}
	return c.decidedSince(c.shutdownSince, now)
}

// looked is the operator's Look if deletionAllowed was decided after that came. Where it is denied
// already there is nothing to wait for.
func (c *core) looked(now time.Time) string {
	if c.deletionAllowed(now) && !c.decidedSince(c.lookSince, now) {
		return ""
	}
	return c.lastAnswer.Look
}

// decidedSince reports whether deletionAllowed rests on what was found out after a time. A
// failed probe doesn't count where an earlier successful one decided: somebody may have joined
// since.
func (c *core) decidedSince(since, now time.Time) bool {
	switch {
	case !c.config.Probed || !c.answered.Before(since):
		return true
	case c.probed.Before(since):
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
		// One lost datagram casts no doubt on the count, but several do.
		return players.Current == 0 && (!c.restsOnProbe(now) || !c.doubtful())
	}
	if c.reported() || c.absent() {
		return true
	}
	return cmp.Or(c.lastAnswer.Unreported, c.config.Unreported) != v1alpha1.DeletionDenied
}

// Full is why a game that is full gets no players.
const Full = "as many play as may"

// notReady explains why the game should get no players.
func (c *core) notReady(now time.Time) string {
	alone := c.config.Readiness != v1alpha1.ServerReadinessSDK && !c.config.Probed
	state, message := c.state(now)
	switch {
	case c.lastAnswer.Shutdown:
		return "the Server is being deleted or stopped"
	case c.lastAnswer.Drain:
		return "the Server gets no new players"
	case !c.restored && !alone:
		return "the operator hasn't answered yet since this sidecar started"
	case state == v1alpha1.GameShutdown:
		return "the game asked for its own end"
	case c.words.leaving.value:
		return "the game ends once nobody plays"
	case state == v1alpha1.GameUnhealthy:
		return message
	case !c.running():
		return "the game's container doesn't run"
	case !c.open(now) && c.config.Readiness == v1alpha1.ServerReadinessSDK:
		return "the game hasn't called Ready"
	case !c.open(now):
		return "the game hasn't answered a probe"
	case c.lastAnswer.SkipFull && c.full():
		return Full
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
		Looked:          c.looked(now),
		Answered:        c.words.answer.said(),
		Hidden:          !c.words.hidden.IsZero(),
		Restored:        c.restored,
		Capacity:        c.capacity(),
		NotReady:        c.notReady(now),
		LastAnswer:      c.lastAnswer,
		Restarts:        c.restarts,
	}
	phase := c.said(now)
	s.Memory = c.memory(state, phase, s.Game.Players)
	if state == v1alpha1.GameReserved || s.Memory.Phase != "" {
		s.Game.ReservedUntil = phase.until
	}
	s.Game.Counters, s.Game.Lists = c.kept()
	return s
}

// memory is what the sidecar after this one needs besides the Game that is reported.
func (c *core) memory(state v1alpha1.GameState, said phase, players *v1alpha1.PlayersStatus) reportapi.Memory {
	m := reportapi.Memory{Leaving: c.words.leaving.value}
	if state == v1alpha1.GameShutdown {
		m.Leaving = !c.ordered
	}
	// What the game said goes on once it is well again, or when somebody has come after all.
	if state == v1alpha1.GameUnhealthy || state == v1alpha1.GameShutdown && said.state != v1alpha1.GameShutdown {
		m.Phase = cmp.Or(said.state, v1alpha1.GameStarting)
	}
	if !c.started.IsZero() {
		m.Started = new(c.started)
	}
	if c.config.Probed {
		m.CountsPlayers = c.countsPlayers()
	} else {
		m.CountsPlayers = (m.Leaving || c.words.leaving.value) && players != nil
	}
	return m
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
	if p := c.said(now); p.state == v1alpha1.GameReserved && p.until != nil && (next.IsZero() || p.until.Before(next)) {
		next = *p.until
	}
	return next
}
