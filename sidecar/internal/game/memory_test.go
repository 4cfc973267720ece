package game

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// earlier has an operator of an earlier version restore what it knows of.
func earlier(a *reportapi.Answer) {
	m := *a.RestoredMemory
	m.Leaving = false
	a.RestoredMemory = &m
}

func (w *world) wantEnding(want bool, when string) {
	w.t.Helper()
	if why := w.Snapshot().NotReady; (why != "") != want {
		w.t.Errorf("%s the game is not ready because of %q, want it to end once nobody plays: %t", when, why, want)
	}
}

// Where the sidecar alone starts again, a game that is to end once nobody plays gets nobody new, and ends.
func TestThatAGameEndsOnceNobodyPlaysIsRestored(t *testing.T) {
	t.Parallel()
	marked := func() *world {
		w := answeredWorld(t, plainGame())
		w.must(w.SetPlayers(2, nil))
		w.Ready()
		w.must(w.EndWhenEmpty(true))
		return w
	}
	w := marked()
	for range 2 {
		w = w.next()
		w.answered(nil)
		w.wantGame(v1alpha1.GameReady, false, "with players")
		w.wantEnding(true, "in another sidecar")
	}
	w.must(w.SetPlayers(0, nil))
	w.wantGame(v1alpha1.GameShutdown, true, "empty")

	w = marked().next()
	w.answered(nil)
	w.must(w.EndWhenEmpty(false))
	w.wantEnding(false, "taken back")
	w = w.next()
	w.answered(nil)
	w.wantEnding(false, "taken back, in a third sidecar")

	w = marked().next()
	w.must(w.EndWhenEmpty(false))
	w.answered(nil)
	w.wantEnding(false, "taken back before the operator answered")

	w = marked().next()
	w.later(time.Minute)
	w.answered(nil)
	w.restartsGame()
	w.wantEnding(false, "in a new process")

	last := marked()
	last.later(time.Minute)
	w = last.next()
	w.restartsGame()
	w.wantEnding(false, "in a new process, which the operator saw before the sidecar asked")
}

// An end because nobody plays is none any more once somebody has come, or it is taken back.
func TestAnEndBecauseNobodyPlaysIsRestoredAsThat(t *testing.T) {
	t.Parallel()
	restores := map[string]func(*reportapi.Answer){"by an operator of this version": nil, "by an earlier one": earlier}
	for name, c := range map[string]struct {
		was  func(w *world)
		want v1alpha1.GameState
	}{
		"Ready":          {func(w *world) { w.Ready() }, v1alpha1.GameReady},
		"Allocated":      {func(w *world) { w.Allocate() }, v1alpha1.GameAllocated},
		"Reserved":       {func(w *world) { w.Reserve(time.Hour) }, v1alpha1.GameReserved},
		"nothing":        {func(*world) {}, v1alpha1.GameStarting},
		"its own end":    {func(w *world) { w.Shutdown() }, v1alpha1.GameShutdown},
		"a reservation,": {func(w *world) { w.Reserve(time.Second); w.later(time.Minute) }, v1alpha1.GameReady},
	} {
		for by, change := range restores {
			restored := func() *world {
				w := answeredWorld(t, sdkGame())
				c.was(w)
				w.must(w.SetPlayers(0, nil))
				w.must(w.EndWhenEmpty(true))
				for range 2 {
					w.wantGame(v1alpha1.GameShutdown, true, name+", "+by)
					w = w.next()
					w.answered(change)
				}
				return w
			}
			w := restored()
			w.wantGame(v1alpha1.GameShutdown, true, name+", "+by)
			w.must(w.SetPlayers(1, nil))
			w.wantGame(c.want, c.want == v1alpha1.GameShutdown, name+", "+by+", with a player")
			w.wantEnding(true, name+", "+by+", with a player")
			if until := w.Snapshot().Game.ReservedUntil; (until != nil) != (c.want == v1alpha1.GameReserved) {
				t.Errorf("%s, %s: reserved until %s", name, by, until)
			}

			w = restored()
			w.must(w.EndWhenEmpty(false))
			inUse := c.want == v1alpha1.GameAllocated || c.want == v1alpha1.GameReserved
			w.wantGame(c.want, !inUse, name+", "+by+", taken back")
		}
	}
}

// A reservation that goes on in the memory ends in time, too.
func TestAReservationEndsWhileNobodyPlays(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, sdkGame())
	w.Reserve(time.Minute)
	w.must(w.SetPlayers(0, nil))
	w.must(w.EndWhenEmpty(true))
	if got, want := w.core.next(w.clock.Now()), morning.Add(time.Minute); !got.Equal(want) {
		t.Errorf("the state changes by itself at %s, want %s", got, want)
	}
	w.later(time.Minute)
	if s := w.Snapshot(); s.Game.State != v1alpha1.GameShutdown || s.Memory.Phase != v1alpha1.GameReady || s.Game.ReservedUntil != nil {
		t.Errorf("the game is %+v with %+v", s.Game, s.Memory)
	}
}

// The status of a Server whose spec has a capacity shows that nobody plays, whoever has said so.
func TestNobodyIsGuessedToBeGoneInAnotherSidecar(t *testing.T) {
	t.Parallel()
	leave := func(w *world) { w.must(w.EndWhenEmpty(true)) }
	fails := func(w *world) { w.Answered(w.clock.Now(), 0, 20); w.later(time.Minute); w.unanswered(3); leave(w) }
	// The first reason for being Unhealthy is the one that is said.
	saysAndFails := func(w *world) {
		w.Answered(w.clock.Now(), 0, 20)
		w.later(time.Minute)
		w.unanswered(2)
		w.Failed()
		w.unanswered(1)
		leave(w)
	}
	for name, c := range map[string]struct {
		config Config
		say    func(w *world)
		want   v1alpha1.GameState
	}{
		"in use, and nobody was counted":              {plainGame(), func(w *world) { w.Allocate(); leave(w) }, v1alpha1.GameAllocated},
		"in use, and said to be empty":                {plainGame(), func(w *world) { w.Allocate(); leave(w); w.must(w.SetPlayers(0, nil)) }, v1alpha1.GameShutdown},
		"in use, with room for some":                  {plainGame(), func(w *world) { w.Allocate(); leave(w); w.must(w.SetPlayerCapacity(8)) }, v1alpha1.GameShutdown},
		"idle, and nobody was counted":                {plainGame(), func(w *world) { w.Ready(); leave(w) }, v1alpha1.GameShutdown},
		"in use, before its probe is answered":        {probedGame(), func(w *world) { w.Allocate(); leave(w) }, v1alpha1.GameAllocated},
		"in use, and empty by its probe":              {probedGame(), func(w *world) { w.Allocate(); w.Answered(w.clock.Now(), 0, 20); leave(w) }, v1alpha1.GameShutdown},
		"in use, and empty before its probe failed":   {probedGame(), func(w *world) { w.Allocate(); fails(w) }, v1alpha1.GameUnhealthy},
		"idle, and empty before its probe failed":     {probedGame(), fails, v1alpha1.GameUnhealthy},
		"idle, and said to fail before its probe did": {probedGame(), saysAndFails, v1alpha1.GameUnhealthy},
		"used, and said to fail before its probe did": {probedGame(), func(w *world) { w.Allocate(); saysAndFails(w) }, v1alpha1.GameUnhealthy},
		"broken, and nobody was counted":              {plainGame(), func(w *world) { w.Allocate(); w.Failed(); leave(w) }, v1alpha1.GameUnhealthy},
		"in use, reserved, and nobody was counted":    {plainGame(), func(w *world) { w.Reserve(time.Hour); leave(w) }, v1alpha1.GameReserved},
		"in use, and empty by its own word, not only": {probedGame(), func(w *world) { w.Allocate(); w.must(w.SetPlayers(0, nil)); leave(w) }, v1alpha1.GameShutdown},
	} {
		w := answeredWorld(t, c.config)
		c.say(w)
		deletable := w.Snapshot().DeletionAllowed
		for range 2 {
			w.wantGame(c.want, deletable, name+",")
			w = w.next()
			if w.answer.Restored.Players == nil {
				w.answer.Restored.Players = &v1alpha1.PlayersStatus{Capacity: w.answer.Server.Capacity}
			}
			w.answered(nil)
		}
		w.wantGame(c.want, deletable, name+", in a third sidecar")
	}
	// Who calls an idle game in use after all isn't gone because of the capacity either.
	w := answeredWorld(t, plainGame())
	leave(w)
	w = w.next()
	w.answer.Restored.Players = &v1alpha1.PlayersStatus{Capacity: w.answer.Server.Capacity}
	w.answered(nil)
	w.Allocate()
	w.wantGame(v1alpha1.GameAllocated, false, "in use after all")
}

// A ping says nothing of who plays: only the probe's next answer does.
func TestAPingIsNoWordOfWhoPlaysInAnotherSidecar(t *testing.T) {
	t.Parallel()
	for _, pingsFirst := range []bool{true, false} {
		w := answeredWorld(t, probedGame())
		w.Answered(w.clock.Now(), 1, 20)
		w.must(w.EndWhenEmpty(true))
		w.later(time.Minute)
		w.unanswered(3)
		w = w.next()
		w.answer.Restored.Players.Current = 0 // the last answer, since which somebody has come
		if pingsFirst {
			w.Ping()
		}
		w.answered(nil)
		w.Ping()
		w.wantGame(v1alpha1.GameReady, false, "after a ping")
		w.Healthy()
		w.wantGame(v1alpha1.GameReady, false, "after it said that it is well")
		w.Answered(w.clock.Now(), 0, 20)
		w.wantGame(v1alpha1.GameShutdown, true, "once its probe is answered")
	}
}
