package game

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func (w *world) wantGame(want v1alpha1.GameState, deletable bool, when string) {
	w.t.Helper()
	if s := w.Snapshot(); s.Game.State != want || s.DeletionAllowed != deletable {
		w.t.Errorf("%s the game is %s (%s) and may be deleted %t; want %s and %t", when, s.Game.State, s.Game.Message, s.DeletionAllowed, want, deletable)
	}
}

// A game that says once that it is well isn't broken because it doesn't say so again.
func TestWellIsSaidOnce(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, sdkGame())
	w.wantGame(v1alpha1.GameStarting, true, "at first")
	w.Healthy()
	w.wantGame(v1alpha1.GameReady, true, "once it is well")
	w.Allocate()
	w.later(time.Hour)
	w.wantGame(v1alpha1.GameAllocated, false, "an hour later, in use,")
	w.Healthy()
	w.wantGame(v1alpha1.GameAllocated, false, "well again, in use,")
}

// What a game says of its failure counts, whatever its pings and probes say, until it takes that back.
func TestAFailureIsTheGamesToTakeBack(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, probedGame())
	w.Answered(w.clock.Now(), 0, 0)
	w.Failed()
	w.wantGame(v1alpha1.GameUnhealthy, true, "after its failure")
	w.Answered(w.clock.Now(), 0, 0)
	w.Ping()
	w.Failed()
	w.wantGame(v1alpha1.GameUnhealthy, true, "after an answer and a ping")
	w.Healthy()
	w.wantGame(v1alpha1.GameReady, true, "well again")
	w.Failed()
	w.later(time.Minute)
	w.restartsGame()
	w.Answered(w.clock.Now(), 0, 0)
	w.wantGame(v1alpha1.GameReady, true, "in another process")
}

// Another sidecar knows of a failure, and of a game that has been well since.
func TestAFailureOutlivesTheSidecar(t *testing.T) {
	t.Parallel()
	before := answeredWorld(t, probedGame())
	before.Failed()
	failed := before.Snapshot().Game

	after := newWorld(t, probedGame())
	after.answered(func(a *reportapi.Answer) { a.Restored = &failed })
	after.Answered(after.clock.Now(), 0, 0)
	after.wantGame(v1alpha1.GameUnhealthy, true, "in another sidecar")

	well := newWorld(t, probedGame())
	well.Healthy()
	well.answered(func(a *reportapi.Answer) { a.Restored = &failed })
	well.Answered(well.clock.Now(), 0, 0)
	well.wantGame(v1alpha1.GameReady, true, "well in another sidecar")
}

// A game that is to end once nobody plays gets no new players, and ends with the last one.
func TestAGameEndsWhenItIsEmpty(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, plainGame())
	set := func(players int64) {
		t.Helper()
		if err := w.SetPlayers(players, nil); err != nil {
			t.Fatal(err)
		}
	}
	end := func(wanted bool) {
		t.Helper()
		if err := w.EndWhenEmpty(wanted); err != nil {
			t.Fatal(err)
		}
	}
	set(2)
	w.Allocate()
	end(true)
	w.wantGame(v1alpha1.GameAllocated, false, "with players")
	if w.Snapshot().NotReady == "" {
		t.Error("it gets new players")
	}
	end(false)
	if why := w.Snapshot().NotReady; why != "" {
		t.Errorf("taken back, it gets none because %s", why)
	}
	end(true)
	set(0)
	w.wantGame(v1alpha1.GameShutdown, true, "empty")
	set(1) // came in the moment before
	w.wantGame(v1alpha1.GameAllocated, false, "with one more")
	set(0)
	w.answered(func(a *reportapi.Answer) { a.Shutdown = true })
	if err := w.EndWhenEmpty(false); KindOf(err) != TooLate {
		t.Errorf("taken back too late: %v", err)
	}
	w.wantGame(v1alpha1.GameShutdown, true, "at its end")
}

// Who says nothing of its players is empty unless it is in use, and a probe that isn't answered any
// more shows nobody gone.
func TestWhoIsEmptyIsNotGuessed(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, plainGame())
	w.Allocate()
	if err := w.EndWhenEmpty(true); err != nil {
		t.Fatal(err)
	}
	w.wantGame(v1alpha1.GameAllocated, false, "in use")
	w.Ready()
	w.wantGame(v1alpha1.GameShutdown, true, "idle")

	w = answeredWorld(t, probedGame())
	w.Answered(w.clock.Now(), 0, 0)
	for range w.core.config.Health.FailureThreshold {
		w.later(w.core.config.Health.Period)
		w.Unanswered(w.clock.Now())
	}
	if err := w.EndWhenEmpty(true); err != nil {
		t.Fatal(err)
	}
	if s := w.Snapshot(); s.Game.State == v1alpha1.GameShutdown || s.DeletionAllowed {
		t.Errorf("an answer that is old ends it: %s, may be deleted %t", s.Game.State, s.DeletionAllowed)
	}
	w.Answered(w.clock.Now(), 0, 0)
	w.wantGame(v1alpha1.GameShutdown, true, "empty by its probe")
}
