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

// shutdown has the operator order to shut down, or take that back.
func shutdown(on bool) func(*reportapi.Answer) {
	return func(a *reportapi.Answer) { a.Shutdown = on }
}

// A game may exit as soon as it has asked for its end, and be started again before anybody acts by that.
func TestAnEndOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	asks := map[string]func(w *world){
		"Shutdown":               func(w *world) { w.Allocate(); w.connect("ann"); w.Shutdown() },
		"an end when it's empty": func(w *world) { w.must(w.SetPlayers(0, nil)); w.Allocate(); w.must(w.EndWhenEmpty(true)) },
	}
	type step = func(w *world) *world
	later := func(d time.Duration) step { return func(w *world) *world { w.later(d); return w } }
	ends := func(w *world) *world { w.endsGame(); return w }
	starts := func(w *world) *world { w.restartsGame(); return w }
	sidecar := func(w *world) *world { return w.next() } // the next answer is its first
	answer := func(w *world) *world { w.answered(nil); return w }
	restarts := map[string][]step{
		"in the same second":      {later(100 * time.Millisecond), starts},
		"in the next second":      {later(time.Second), starts},
		"after a while":           {later(time.Minute), ends, later(time.Minute), starts},
		"twice":                   {later(time.Minute), starts, later(time.Minute), starts},
		"with its sidecar":        {later(time.Minute), sidecar, starts},
		"with its sidecar, later": {later(time.Minute), sidecar, ends, later(time.Minute), starts},
		"before its sidecar":      {later(time.Minute), starts, sidecar, answer},
		"after its sidecar":       {sidecar, answer, later(time.Minute), starts},
	}
	for name, ask := range asks {
		for when, steps := range restarts {
			again := func() *world {
				w := answeredWorld(t, denying(sdkGame()))
				w.later(10 * time.Second)
				ask(w)
				w.wantGame(v1alpha1.GameShutdown, true, name)
				for _, step := range steps {
					w = step(w)
				}
				return w
			}
			name := name + ", and it starts again " + when
			w := again()
			w.wantGame(v1alpha1.GameShutdown, true, name)
			if s := w.Snapshot(); s.ShutdownSeen || !s.Game.Reported {
				t.Errorf("%s: shutdown seen %t, reported %t", name, s.ShutdownSeen, s.Game.Reported)
			}
			w.later(2 * time.Second)
			w.Ready()
			w.wantGame(v1alpha1.GameShutdown, true, name+", and is Ready")
			// Whoever came before anybody acted by that isn't thrown out.
			w.connect("bob")
			w.wantGame(v1alpha1.GameReady, false, name+", and has a player")
			w.wantEnding(true, name+", and has a player,")
			_, err := w.PlayerDisconnect("bob")
			w.must(err)
			w.wantGame(v1alpha1.GameShutdown, true, name+", and has none any more")

			w = again()
			w.must(w.TakeBackShutdown())
			w.Ready()
			w.wantEnding(false, name+", and it is taken back,")
			w = again()
			w.must(w.EndWhenEmpty(false))
			w.Ready()
			w.wantEnding(false, name+", and it is taken back for good,")
		}
	}
}

// What a game does because it was ordered to doesn't count once the order is taken back, with the process that did
// it or the next one.
func TestAnOrderedEndIsNotTheGamesOwn(t *testing.T) {
	t.Parallel()
	asks := map[string]func(w *world){
		"Shutdown":               func(w *world) { w.Shutdown() },
		"an end when it's empty": func(w *world) { w.must(w.SetPlayers(0, nil)); w.must(w.EndWhenEmpty(true)) },
	}
	for name, ask := range asks {
		ordered := func() *world {
			w := answeredWorld(t, sdkGame())
			w.Allocate()
			w.later(10 * time.Second)
			w.answered(shutdown(true))
			ask(w)
			w.wantGame(v1alpha1.GameShutdown, true, name)
			return w
		}
		wantSeen := func(w *world, want bool, when string) {
			t.Helper()
			if got := w.Snapshot().ShutdownSeen; got != want {
				t.Errorf("%s, %s: shutdown seen %t, want %t", name, when, got, want)
			}
		}
		w := ordered()
		w.answered(shutdown(false))
		w.wantGame(v1alpha1.GameShutdown, true, name+", and the order is taken back")
		wantSeen(w, true, "and the order is taken back")
		w.later(2 * time.Second)
		w.restartsGame()
		w.wantGame(v1alpha1.GameStarting, true, name+", then the order is taken back, then it starts again")
		wantSeen(w, false, "in a new process")
		w.Shutdown()
		wantSeen(w, false, "once it ends by itself")

		w = ordered()
		w.later(2 * time.Second)
		w.restartsGame()
		w.answered(shutdown(false))
		w.wantGame(v1alpha1.GameStarting, true, name+", then it starts again, then the order is taken back")

		w = ordered().next()
		w.answered(nil)
		w.wantGame(v1alpha1.GameShutdown, true, name+", in another sidecar")
		w.answered(shutdown(false))
		wantSeen(w, true, "in another sidecar, and the order is taken back")
		w.later(2 * time.Second)
		w.restartsGame()
		w.wantGame(v1alpha1.GameStarting, true, name+", in another sidecar, and it starts again")

		w = ordered().next()
		w.answered(shutdown(false))
		wantSeen(w, true, "in another sidecar, to which nobody orders it any more")

		w = ordered()
		w.later(2 * time.Second)
		w = w.next()
		w.answer.Shutdown = false
		w.restartsGame()
		w.wantGame(v1alpha1.GameStarting, true, name+", and it starts again with its sidecar")
	}
}

// Where somebody has come, what was seen of the order no longer counts for the next one.
func TestAnOrderIsSeenWhileTheGameFollowsIt(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, sdkGame())
	w.Ready()
	w.answered(shutdown(true))
	w.must(w.EndWhenEmpty(true))
	w.answered(shutdown(false))
	for _, players := range []int64{0, 1, 0} {
		w.must(w.SetPlayers(players, nil))
		if got := w.Snapshot().ShutdownSeen; got != (players == 0) {
			t.Errorf("with %d players: shutdown seen %t", players, got)
		}
	}
}

// Whoever asked before the order ends by itself, though the order comes and goes.
func TestAnEndOutlivesAnOrder(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(w *world) *world{
		"Shutdown": func(w *world) *world {
			w.Shutdown()
			w.answered(shutdown(true))
			w.later(2 * time.Second)
			w.restartsGame()
			return w
		},
		"Shutdown, and another sidecar": func(w *world) *world {
			w.Shutdown()
			w.answered(shutdown(true))
			w = w.next()
			w.answered(nil)
			return w
		},
		"an end when it's empty, and Shutdown then": func(w *world) *world {
			w.must(w.SetPlayers(1, nil))
			w.must(w.EndWhenEmpty(true))
			w.answered(shutdown(true))
			w.Shutdown()
			w.later(2 * time.Second)
			w.restartsGame()
			return w
		},
	} {
		w := happens(answeredWorld(t, sdkGame()))
		w.answered(shutdown(false))
		w.wantGame(v1alpha1.GameShutdown, true, name)
		if w.Snapshot().ShutdownSeen {
			t.Errorf("%s: the order is seen that is taken back", name)
		}
	}
}

// A process may speak before the operator has seen that it is a new one.
func TestTheNextProcessDecidesOnItsEnd(t *testing.T) {
	t.Parallel()
	w := answeredWorld(t, sdkGame())
	w.Shutdown()
	w.later(2 * time.Second)
	w.must(w.EndWhenEmpty(false))
	w.restartsGame()
	w.wantGame(v1alpha1.GameStarting, true, "taken back")

	w = answeredWorld(t, sdkGame())
	w.answered(shutdown(true))
	w.must(w.EndWhenEmpty(true))
	w.later(2 * time.Second)
	w.must(w.EndWhenEmpty(true))
	w.restartsGame()
	w.answered(shutdown(false))
	if s := w.Snapshot(); s.Game.State != v1alpha1.GameShutdown || !s.ShutdownSeen {
		t.Errorf("asked for as it was ordered, by either: %s, shutdown seen %t", s.Game.State, s.ShutdownSeen)
	}
}
