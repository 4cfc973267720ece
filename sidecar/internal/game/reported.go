package game

import (
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// word is what the game last reported of one thing, and when; zero: never.
type word[T any] struct {
	value T
	at    time.Time
}

func say[T any](value T, at time.Time) word[T] { return word[T]{value, at} }

func (w word[T]) said() bool { return !w.at.IsZero() }

// forget drops what was reported before a time.
func (w *word[T]) forget(before time.Time) {
	if w.at.Before(before) {
		*w = word[T]{}
	}
}

// phase is the phase that the game last reported.
type phase struct {
	// state is Ready, Allocated, Reserved or Shutdown; empty: none was reported.
	state v1alpha1.GameState
	// until ends a reservation; nil: it doesn't end.
	until *time.Time
}

// count is how many play, and how many may.
type count struct{ current, capacity int32 }

// brokenness is why a game is Unhealthy, and since when this sidecar has known.
type brokenness struct {
	message string
	since   time.Time
}

// words is everything that a process of the game reported.
type words struct {
	phase word[phase]
	// before is the phase before Shutdown, for a game that undoes that.
	before word[phase]
	// leaving is whether the game is to end once nobody plays. False counts as said, too: it comes before what
	// is restored.
	leaving word[bool]
	// permission is Allowed or Denied.
	permission word[v1alpha1.DeletionPermission]
	// players is how many play, from a game that only counts them.
	players word[int32]
	// roster is who plays, in the order of joining; tracked is when the game last reported a
	// change of it. The latest of players and tracked counts.
	roster  []word[string]
	tracked time.Time
	// capacity is how many may play.
	capacity word[int32]
	// answer is the probe's last answer.
	answer word[count]
	// unanswered is how many probes in a row had no answer since then, and failing is when they
	// became too many.
	unanswered int
	failing    time.Time
	// counted is when the last of them was sent.
	counted time.Time
	// hidden is when the last probe was answered; zero where that answer said how many play.
	hidden time.Time
	// stale is set where the answer is one that an earlier sidecar had, of a game that was Unhealthy by then:
	// its probes may have been unanswered since, whatever else the game says.
	stale bool
	// ping is when the game last reported that it is well.
	ping time.Time
	// broken is the state of a game that became Unhealthy before this sidecar started.
	broken word[brokenness]
	// failed is said where the game has said that it is broken, and well is when it last said the
	// opposite.
	failed word[brokenness]
	well   time.Time
	// last is when the game last reported anything.
	last time.Time
	// reported is when it last reported its state, its players or a permission, or answered its
	// probe.
	reported time.Time
}

// forget drops what was reported before a time.
func (w *words) forget(before time.Time) {
	w.phase.forget(before)
	w.before.forget(before)
	w.permission.forget(before)
	w.players.forget(before)
	w.roster = slices.DeleteFunc(slices.Clone(w.roster), func(p word[string]) bool { return p.at.Before(before) })
	w.capacity.forget(before)
	w.answer.forget(before)
	w.broken.forget(before)
	w.failed.forget(before)
	w.leaving.forget(before)
	for _, t := range [...]*time.Time{&w.tracked, &w.ping, &w.well, &w.last, &w.reported, &w.hidden} {
		if t.Before(before) {
			*t = time.Time{}
		}
	}
	if !w.answer.said() {
		w.unanswered, w.failing, w.stale = 0, time.Time{}, false
	}
}

// forgetPlayers drops the players that were reported before a time.
func (w *words) forgetPlayers(before time.Time) {
	w.players.forget(before)
	w.roster = slices.DeleteFunc(slices.Clone(w.roster), func(p word[string]) bool { return p.at.Before(before) })
	if w.tracked.Before(before) {
		w.tracked = time.Time{}
	}
}

// find is the index of a player in the roster; -1: none.
func (w *words) find(id string) int {
	return slices.IndexFunc(w.roster, func(p word[string]) bool { return p.value == id })
}

// ids is the roster without its times.
func (w *words) ids() []string {
	out := make([]string, len(w.roster))
	for i, p := range w.roster {
		out[i] = p.value
	}
	return out
}
