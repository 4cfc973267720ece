package game

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func denying(c Config) Config {
	c.Unreported = v1alpha1.DeletionDenied
	return c
}

func TestWhetherAServerMayGo(t *testing.T) {
	one := func(w *world) { w.must(w.SetPlayers(1, nil)) }
	cases := map[string]struct {
		config Config
		happen func(w *world)
		want   bool
	}{
		"nothing was said, and that allows it": {sdkGame(), func(*world) {}, true},
		"nothing was said, and that denies it": {denying(sdkGame()), func(*world) {}, false},
		"an unanswered probe says nothing":     {denying(probedGame()), func(w *world) { w.Unanswered(w.clock.Now()) }, false},
		"a game that is Ready has reported":    {denying(sdkGame()), func(w *world) { w.Ready() }, true},
		"a ping reports nothing":               {denying(sdkGame()), func(w *world) { w.Ping() }, false},
		"a label reports nothing":              {denying(sdkGame()), func(w *world) { w.must(w.SetLabel("mode", "ctf")) }, false},
		"a counter reports nothing": {denying(sdkGame()), func(w *world) {
			w.answered(keeping)
			_, err := w.UpdateCounter("rooms", CounterUpdate{Add: 1})
			w.must(err)
		}, false},
		"a capacity says nothing of a probed game's players": {denying(probedGame()), func(w *world) { w.must(w.SetPlayerCapacity(8)) }, false},
		"a capacity says that nobody has come yet":           {denying(sdkGame()), func(w *world) { w.must(w.SetPlayerCapacity(8)) }, true},
		"somebody plays":                                     {sdkGame(), one, false},
		"nobody plays any more":                              {denying(sdkGame()), func(w *world) { one(w); w.must(w.SetPlayers(0, nil)) }, true},
		"a named player is there":                            {sdkGame(), func(w *world) { w.connect("ann") }, false},
		"the named player has left":                          {sdkGame(), func(w *world) { w.connect("ann"); _, err := w.PlayerDisconnect("ann"); w.must(err) }, true},
		"the probe says that somebody plays":                 {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 1, 20) }, false},
		"the probe says that nobody plays":                   {denying(probedGame()), func(w *world) { w.Answered(w.clock.Now(), 0, 20) }, true},
		"the game's own count comes before the probe's":      {probedGame(), func(w *world) { one(w); w.Answered(w.clock.Now(), 0, 20) }, false},
		"an empty game that is Allocated":                    {sdkGame(), func(w *world) { w.must(w.SetPlayers(0, nil)); w.Allocate() }, false},
		"an empty game that is Reserved":                     {sdkGame(), func(w *world) { w.must(w.SetPlayers(0, nil)); w.Reserve(time.Minute) }, false},
		"a reservation that is over":                         {sdkGame(), func(w *world) { w.Reserve(time.Minute); w.later(time.Minute) }, true},
		"an allocation that Ready ended":                     {sdkGame(), func(w *world) { w.Allocate(); w.Ready() }, true},
		"players don't hold a game that asks for its end":    {sdkGame(), func(w *world) { one(w); w.Shutdown() }, true},
		"they do when it takes that back":                    {sdkGame(), func(w *world) { one(w); w.Shutdown(); w.must(w.TakeBackShutdown()) }, false},
		"a permission comes before players":                  {sdkGame(), func(w *world) { one(w); w.Permit(true) }, true},
		"a permission comes before Allocated":                {sdkGame(), func(w *world) { w.Allocate(); w.Permit(true) }, true},
		"a denial comes before an empty game":                {sdkGame(), func(w *world) { w.must(w.SetPlayers(0, nil)); w.Permit(false) }, false},
		"a denial comes before Shutdown":                     {sdkGame(), func(w *world) { w.Permit(false); w.Shutdown() }, false},
		"Unhealthy for less than five minutes keeps players": {sdkGame(), func(w *world) { w.Ping(); one(w); w.later(30*time.Second + goneAfter - time.Second) }, false},
		"Unhealthy for five minutes has nobody any more":     {sdkGame(), func(w *world) { w.Ping(); one(w); w.later(30*time.Second + goneAfter) }, true},
		"not even against its own denial":                    {sdkGame(), func(w *world) { w.Ping(); w.Permit(false); w.later(time.Hour) }, true},
		"a word keeps an Unhealthy game's players":           {sdkGame(), func(w *world) { w.Ping(); one(w); w.later(4 * time.Minute); one(w); w.later(4 * time.Minute) }, false},
		"a probe's silence counts, too":                      {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 3, 0); w.unanswered(3); w.later(time.Hour) }, true},
		"one lost probe doesn't doubt an empty game":         {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.unanswered(2) }, true},
		"several do":                             {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.unanswered(3) }, false},
		"until it answers":                       {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.unanswered(3); w.Answered(w.clock.Now(), 0, 0) }, true},
		"or is silent for long":                  {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.unanswered(3); w.later(time.Hour) }, true},
		"an answer without a count does at once": {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.Uncounted(w.clock.Now()) }, false},
		"also of a game that isn't judged":       {unjudged(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.Uncounted(w.clock.Now()) }, false},
		"until one has it": {probedGame(), func(w *world) {
			w.Answered(w.clock.Now(), 0, 0)
			w.Uncounted(w.clock.Now())
			w.Answered(w.clock.Now(), 0, 0)
		}, true},
		"a game that hides its players keeps them":         {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 3, 0); w.uncounted(100); w.later(goneAfter) }, false},
		"one that is silent then has nobody after a while": {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 3, 0); w.uncounted(3); w.unanswered(3); w.later(time.Hour) }, true},
		"and not before": {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 3, 0); w.unanswered(9); w.uncounted(1); w.unanswered(3) }, false},
		"one that has hidden them from its start says nothing": {denying(probedGame()), func(w *world) { w.uncounted(9) }, false},
		"its own word needs no probe":                          {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.must(w.SetPlayers(0, nil)); w.unanswered(3) }, true},
		"a game that isn't judged never loses its players":     {unjudged(), func(w *world) { w.Ping(); one(w); w.later(time.Hour) }, false},
		"a game that never pinged never loses its players":     {sdkGame(), func(w *world) { one(w); w.later(time.Hour) }, false},
		"players of a process that is gone":                    {sdkGame(), func(w *world) { one(w); w.later(2 * time.Second); w.restartsGame() }, true},
		"an allocation of a process that is gone":              {sdkGame(), func(w *world) { w.Allocate(); w.later(2 * time.Second); w.restartsGame() }, true},
		"a permission of a process that is gone":               {denying(sdkGame()), func(w *world) { w.Permit(true); w.later(2 * time.Second); w.restartsGame() }, false},
		"a container that doesn't run, as one replica sees it": {sdkGame(), func(w *world) { one(w); w.answered(func(a *reportapi.Answer) { a.GameStarted = nil }) }, false},
		"the same of a game that says nothing":                 {denying(sdkGame()), func(w *world) { w.answered(func(a *reportapi.Answer) { a.GameStarted = nil }) }, false},
		"a game that has ended":                                {denying(sdkGame()), func(w *world) { w.later(4 * time.Second); w.endsGame() }, true},
		"one that pinged before":                               {denying(sdkGame()), func(w *world) { w.later(4 * time.Second); w.Ping(); w.endsGame() }, true},
		"one that has ended, and pings again":                  {denying(sdkGame()), func(w *world) { w.endsGame(); w.later(4 * time.Second); w.Ping() }, false},
		"one that has ended, and has players again":            {denying(sdkGame()), func(w *world) { w.endsGame(); w.later(4 * time.Second); one(w) }, false},
		"one that has ended, and runs again":                   {denying(sdkGame()), func(w *world) { w.endsGame(); w.later(4 * time.Second); w.restartsGame() }, false},
		"the end of an earlier one, as a replica sees it that lags": {denying(sdkGame()), func(w *world) {
			ended := wholeSecond(w.clock.Now())
			w.later(4 * time.Second)
			w.restartsGame()
			w.answered(func(a *reportapi.Answer) { a.GameStarted, a.GameEnded = nil, ended })
		}, false},
		"a probed game that has ended":         {denying(probedGame()), func(w *world) { w.unanswered(1); w.endsGame() }, true},
		"a game that can't be started":         {denying(sdkGame()), func(w *world) { w.waitsForImage() }, true},
		"one that says something all the same": {denying(sdkGame()), func(w *world) { w.Ping(); w.waitsForImage() }, false},
		"the spec allows it by now":            {denying(sdkGame()), func(w *world) { w.answered(unreported(v1alpha1.DeletionAllowed)) }, true},
		"the spec denies it by now":            {sdkGame(), func(w *world) { w.answered(unreported(v1alpha1.DeletionDenied)) }, false},
		"another operator doesn't tell":        {denying(sdkGame()), func(w *world) { w.answered(unreported(v1alpha1.DeletionAllowed)); w.answered(unreported("")) }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := answeredWorld(t, c.config)
			c.happen(w)
			w.wantDeletable(c.want)
		})
	}
}

// endsGame has the operator see that the game's container has just ended.
func (w *world) endsGame() {
	w.t.Helper()
	w.answered(func(a *reportapi.Answer) { a.GameStarted, a.GameEnded = nil, wholeSecond(w.clock.Now()) })
}

// waitsForImage has it see that the container can't be started.
func (w *world) waitsForImage() {
	w.t.Helper()
	w.answered(func(a *reportapi.Answer) { a.GameStarted, a.GameWaits = nil, true })
}

// unreported has the spec say what holds for a game that says nothing.
func unreported(permission v1alpha1.DeletionPermission) func(*reportapi.Answer) {
	return func(a *reportapi.Answer) { a.Unreported = permission }
}

func unjudged() Config {
	c := sdkGame()
	c.Health.Disabled = true
	return c
}

// unanswered has as many probes fail, a period apart.
func (w *world) unanswered(n int) {
	for range n {
		w.later(w.core.config.Health.Period)
		w.Unanswered(w.clock.Now())
	}
}

// uncounted has as many probes get an answer without a count, a period apart.
func (w *world) uncounted(n int) {
	for range n {
		w.later(w.core.config.Health.Period)
		w.Uncounted(w.clock.Now())
	}
}

// The operator's answer has how many played before the sidecar's restart, and may come after the first probe.
func TestAGameThatHidesItsPlayersIsKeptOverARestart(t *testing.T) {
	w := newWorld(t, probedGame())
	w.Uncounted(w.clock.Now())
	w.answered(restoring(&reportapi.Game{State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Capacity: 20}}))
	w.wantPlayers(0, true)
	w.wantDeletable(false)
	w.Answered(w.clock.Now(), 0, 20)
	w.wantDeletable(true)
}

// A plugin that hides who plays doesn't break the game: nobody is to be moved to another one for that.
func TestAGameThatHidesItsPlayersIsWell(t *testing.T) {
	w := answeredWorld(t, probedGame())
	w.uncounted(9)
	w.wantState(v1alpha1.GameStarting)
	w.Answered(w.clock.Now(), 3, 20)
	w.uncounted(9)
	w.wantState(v1alpha1.GameReady)
	w.wantPlayers(3, true)
	w.unanswered(2)
	w.wantState(v1alpha1.GameReady)
	w.unanswered(1)
	w.wantState(v1alpha1.GameUnhealthy)
	w.uncounted(1)
	w.wantState(v1alpha1.GameReady)
}

func TestTheAnswerToAShutdownRestsOnAProbeMadeAfterIt(t *testing.T) {
	w := answeredWorld(t, probedGame())
	w.Answered(w.clock.Now(), 0, 20)
	asked := w.clock.Now()
	w.later(time.Second)
	w.answered(shutdown(true))
	wantSeen := func(want bool) {
		t.Helper()
		if got := w.Snapshot().ShutdownSeen; got != want {
			t.Errorf("shutdown seen %t, want %t", got, want)
		}
	}
	wantSeen(false)
	// This one was under way when the operator told.
	w.Answered(asked, 0, 20)
	wantSeen(false)
	w.later(time.Second)
	w.Answered(w.clock.Now(), 2, 20)
	wantSeen(true)
	w.wantDeletable(false)

	w.answered(shutdown(false))
	wantSeen(false)
	w.later(time.Second)
	w.answered(shutdown(true))
	wantSeen(false)
	// One that fails tells nothing: what was known may have changed since.
	w.later(time.Second)
	w.Unanswered(w.clock.Now())
	wantSeen(false)
	w.wantDeletable(false)
	w.later(time.Second)
	w.Answered(w.clock.Now(), 0, 20)
	wantSeen(true)
	w.wantDeletable(true)

	plain := answeredWorld(t, sdkGame())
	plain.answered(shutdown(true))
	if !plain.Snapshot().ShutdownSeen {
		t.Error("without a probe there is nothing to wait for")
	}
}

// TestALostProbeIsNoAnswerToAShutdown has a player come between the last answer and
// the deletion.
func TestALostProbeIsNoAnswerToAShutdown(t *testing.T) {
	cases := map[string]struct {
		before func(w *world)
		after  func(w *world)
		seen   bool
	}{
		"it was empty before":                       {func(w *world) { w.Answered(w.clock.Now(), 0, 20) }, func(w *world) { w.unanswered(1) }, false},
		"and stays silent":                          {func(w *world) { w.Answered(w.clock.Now(), 0, 20) }, func(w *world) { w.unanswered(50) }, false},
		"until nobody can be playing":               {func(w *world) { w.Answered(w.clock.Now(), 0, 20) }, func(w *world) { w.unanswered(50); w.later(goneAfter) }, true},
		"it never answered":                         {func(w *world) { w.unanswered(1) }, func(w *world) { w.unanswered(1) }, true},
		"it never answered, and wasn't asked since": {func(w *world) { w.unanswered(1) }, func(w *world) { w.later(time.Hour) }, false},
		"it asked for its own end":                  {func(w *world) { w.Answered(w.clock.Now(), 2, 20); w.Shutdown() }, func(w *world) { w.unanswered(1) }, true},
		"it gave its permission":                    {func(w *world) { w.Answered(w.clock.Now(), 2, 20); w.Permit(true) }, func(w *world) { w.unanswered(1) }, true},
		"it says itself how many play":              {func(w *world) { w.Answered(w.clock.Now(), 2, 20); w.must(w.SetPlayers(0, nil)) }, func(w *world) { w.unanswered(1) }, true},
		"the process that answered is gone": {func(w *world) {
			w.Answered(w.clock.Now(), 0, 20)
			w.later(2 * time.Second)
			w.restartsGame()
		}, func(w *world) { w.unanswered(1) }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := answeredWorld(t, probedGame())
			c.before(w)
			w.later(4 * time.Second)
			w.answered(shutdown(true))
			c.after(w)
			if got := w.Snapshot().ShutdownSeen; got != c.seen {
				t.Errorf("shutdown seen %t, want %t", got, c.seen)
			}
		})
	}
}

// A look is replied to by what is found out after it came.
func TestALookIsAnsweredByANewerWord(t *testing.T) {
	looks := func(word string) func(*reportapi.Answer) { return func(a *reportapi.Answer) { a.Look = word } }
	want := func(w *world, looked string) {
		w.t.Helper()
		if got := w.Snapshot().Looked; got != looked {
			w.t.Errorf("looked %q, want %q", got, looked)
		}
	}
	own := answeredWorld(t, sdkGame())
	own.answered(looks("one"))
	want(own, "one") // what a game says by itself is always new
	own.answered(looks(""))
	want(own, "")

	probed := answeredWorld(t, probedGame())
	probed.Answered(probed.clock.Now(), 0, 20)
	probed.later(time.Second)
	before := probed.clock.Now()
	probed.later(time.Second)
	probed.answered(looks("one"))
	want(probed, "")
	probed.Answered(before, 0, 20) // it was under way
	want(probed, "")
	probed.later(time.Second)
	probed.answered(nil) // the same look again
	probed.Unanswered(probed.clock.Now())
	want(probed, "")
	probed.later(time.Second)
	probed.Answered(probed.clock.Now(), 1, 20)
	want(probed, "one")
	probed.wantDeletable(false)
	probed.later(time.Second)
	probed.answered(looks("two"))
	want(probed, "two") // who plays need not be asked
	probed.Answered(probed.clock.Now(), 0, 20)
	probed.answered(looks("three"))
	want(probed, "three") // in the same moment
	probed.later(time.Second)
	probed.answered(looks("four"))
	want(probed, "")
}

// However often a game is looked at, it is as healthy as its period says.
func TestLooksDoNotMakeAGameUnhealthy(t *testing.T) {
	w := answeredWorld(t, probedGame())
	w.later(healthy().InitialDelay)
	w.Answered(w.clock.Now(), 0, 20)
	for range 20 {
		w.later(healthy().Period / 10)
		w.Unanswered(w.clock.Now())
	}
	if state := w.Snapshot().Game.State; state != v1alpha1.GameReady {
		t.Errorf("it is %s after two periods", state)
	}
	for range 11 {
		w.later(healthy().Period / 10)
		w.Unanswered(w.clock.Now())
	}
	if state := w.Snapshot().Game.State; state != v1alpha1.GameUnhealthy {
		t.Errorf("it is %s after three periods", state)
	}
}
