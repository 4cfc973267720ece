package game

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// morning is when the tests begin: not at a whole second, as it is in life.
var morning = time.Date(2030, 1, 1, 8, 0, 0, 400_000_000, time.UTC)

// world is a Game, and the time by which it lives.
type world struct {
	*Game
	t      *testing.T
	clock  *clocktesting.FakeClock
	answer reportapi.Answer
}

func healthy() Health {
	return Health{InitialDelay: 30 * time.Second, Period: 5 * time.Second, FailureThreshold: 3}
}

func sdkGame() Config {
	return Config{Readiness: v1alpha1.ServerReadinessSDK, Unreported: v1alpha1.DeletionAllowed, Health: healthy()}
}

func probedGame() Config {
	return Config{Readiness: v1alpha1.ServerReadinessAuto, Unreported: v1alpha1.DeletionAllowed, Probed: true, Health: healthy()}
}

func plainGame() Config {
	return Config{Readiness: v1alpha1.ServerReadinessAuto, Unreported: v1alpha1.DeletionAllowed, Health: healthy()}
}

// newWorld has a Game whose container starts now, which the operator hasn't told.
func newWorld(t *testing.T, config Config) *world {
	clk := clocktesting.NewFakeClock(morning)
	return &world{Game: New(config, clk), t: t, clock: clk, answer: reportapi.Answer{
		Version: "1", GameStarted: wholeSecond(morning),
		Server: reportapi.Server{Name: "lobby", Capacity: 20},
	}}
}

// answeredWorld has one that the operator knows to run.
func answeredWorld(t *testing.T, config Config) *world {
	w := newWorld(t, config)
	w.answered(nil)
	return w
}

func wholeSecond(at time.Time) *time.Time {
	at = at.Truncate(time.Second)
	return &at
}

// answered has the operator say what it said before, but for what change makes of it.
func (w *world) answered(change func(*reportapi.Answer)) {
	w.t.Helper()
	if change != nil {
		change(&w.answer)
	}
	w.TakeAnswer(w.answer)
	w.answer.Restored, w.answer.RestoredMemory = nil, nil
}

func (w *world) restartsGame() {
	w.t.Helper()
	w.answered(func(a *reportapi.Answer) { a.GameStarted, a.GameEnded = wholeSecond(w.clock.Now()), nil })
}

func (w *world) later(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) state() v1alpha1.GameState { return w.Snapshot().Game.State }

func (w *world) wantState(want v1alpha1.GameState) {
	w.t.Helper()
	if got := w.state(); got != want {
		w.t.Errorf("state %s, want %s", got, want)
	}
}

func (w *world) wantDeletable(want bool) {
	w.t.Helper()
	if got := w.Snapshot().DeletionAllowed; got != want {
		w.t.Errorf("deletion allowed %t, want %t", got, want)
	}
}

func (w *world) wantReady(want bool) {
	w.t.Helper()
	if why := w.Snapshot().NotReady; (why == "") != want {
		w.t.Errorf("not ready because of %q, want ready %t", why, want)
	}
}

func (w *world) wantPlayers(current int32, present bool) {
	w.t.Helper()
	switch got := w.Snapshot().Game.Players; {
	case (got != nil) != present:
		w.t.Errorf("players %+v, want known %t", got, present)
	case present && got.Current != current:
		w.t.Errorf("%d players, want %d", got.Current, current)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) connect(id string) {
	w.t.Helper()
	added, err := w.PlayerConnect(id)
	if err != nil || !added {
		w.t.Fatalf("connecting %s: %t, %v", id, added, err)
	}
}

func wantKind(t *testing.T, err error, want Kind) {
	t.Helper()
	if KindOf(err) != want {
		t.Errorf("error %v is of kind %d, want %d", err, KindOf(err), want)
	}
}
