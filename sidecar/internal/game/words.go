package game

import (
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// word is a thing that the game said last, and when; never, if at is zero.
type word[T any] struct {
	value T
	at    time.Time
}

func say[T any](value T, at time.Time) word[T] { return word[T]{value, at} }

func (w word[T]) said() bool { return !w.at.IsZero() }

// forget drops what was said before a time.
func (w *word[T]) forget(before time.Time) {
	if w.at.Before(before) {
		*w = word[T]{}
	}
}

// phase is what the game last made of itself.
type phase struct {
	// state is Ready, Allocated, Reserved or Shutdown; empty: it said nothing.
	state v1alpha1.GameState
	// until ends a reservation; nil: it doesn't end.
	until *time.Time
}

// count is how many play, and how many may.
type count struct{ current, capacity int32 }

// brokenness is why a game is Unhealthy, and since when this sidecar knows.
type brokenness struct {
	message string
	since   time.Time
}

// words is all that a process of the game said.
type words struct {
	phase word[phase]
	// before is the phase before Shutdown, for a game that takes that back.
	before word[phase]
	// permission is Allowed or Denied.
	permission word[v1alpha1.DeletionPermission]
	// players is how many play, from a game that only counts them.
	players word[int32]
	// roster is who plays, in the order in which they came; tracked is when the
	// game last said something of it. The last of players and tracked holds.
	roster  []word[string]
	tracked time.Time
	// capacity is how many may play.
	capacity word[int32]
	// answer is what the probe was answered last.
	answer word[count]
	// unanswered is how many probes in a row had no answer since, and failing is
	// when they got to be too many.
	unanswered int
	failing    time.Time
	// ping is when the game last said that it is well.
	ping time.Time
	// broken is an Unhealthy game that this sidecar didn't see break: the one
	// before it did.
	broken word[brokenness]
	// last is when the game last said anything.
	last time.Time
	// reported is when it last told its state, its players or a permission, or
	// answered its probe.
	reported time.Time
}

// forget drops what was said before a time.
func (w *words) forget(before time.Time) {
	w.phase.forget(before)
	w.before.forget(before)
	w.permission.forget(before)
	w.players.forget(before)
	w.roster = slices.DeleteFunc(slices.Clone(w.roster), func(p word[string]) bool { return p.at.Before(before) })
	w.capacity.forget(before)
	w.answer.forget(before)
	w.broken.forget(before)
	for _, t := range [...]*time.Time{&w.tracked, &w.ping, &w.last, &w.reported} {
		if t.Before(before) {
			*t = time.Time{}
		}
	}
	if !w.answer.said() {
		w.unanswered, w.failing = 0, time.Time{}
	}
}

// forgetPlayers drops the players that were told of before a time.
func (w *words) forgetPlayers(before time.Time) {
	w.players.forget(before)
	w.roster = slices.DeleteFunc(slices.Clone(w.roster), func(p word[string]) bool { return p.at.Before(before) })
	if w.tracked.Before(before) {
		w.tracked = time.Time{}
	}
}

// find is where a player is in the roster; -1: nowhere.
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
