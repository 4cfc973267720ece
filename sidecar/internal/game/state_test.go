package game

import (
	"context"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestStates(t *testing.T) {
	cases := map[string]struct {
		config Config
		happen func(w *world)
		want   v1alpha1.GameState
		ready  bool
	}{
		"a plain game is Ready from the start":  {plainGame(), func(*world) {}, v1alpha1.GameReady, true},
		"a probed one waits for an answer":      {probedGame(), func(w *world) { w.Unanswered(w.clock.Now()) }, v1alpha1.GameStarting, false},
		"its own word doesn't do":               {probedGame(), func(w *world) { w.Ready() }, v1alpha1.GameStarting, false},
		"a probed one has answered":             {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 20) }, v1alpha1.GameReady, true},
		"an SDK's waits for Ready":              {sdkGame(), func(w *world) { w.Ping() }, v1alpha1.GameStarting, false},
		"an SDK's is Ready":                     {sdkGame(), func(w *world) { w.Ready() }, v1alpha1.GameReady, true},
		"Allocated takes players":               {sdkGame(), func(w *world) { w.Ready(); w.Allocate() }, v1alpha1.GameAllocated, true},
		"Reserved takes players":                {sdkGame(), func(w *world) { w.Reserve(time.Second) }, v1alpha1.GameReserved, true},
		"reserving 0 is for ever":               {sdkGame(), func(w *world) { w.Reserve(0); w.later(100 * time.Hour) }, v1alpha1.GameReserved, true},
		"a reservation ends in Ready":           {sdkGame(), func(w *world) { w.Reserve(time.Second); w.later(time.Second) }, v1alpha1.GameReady, true},
		"a reservation that Allocate took over": {sdkGame(), func(w *world) { w.Reserve(time.Second); w.Allocate(); w.later(time.Second) }, v1alpha1.GameAllocated, true},
		"Shutdown takes nobody":                 {sdkGame(), func(w *world) { w.Ready(); w.Shutdown() }, v1alpha1.GameShutdown, false},
		"from Shutdown Ready leads nowhere":     {sdkGame(), func(w *world) { w.Shutdown(); w.Ready() }, v1alpha1.GameShutdown, false},
		"asking twice and taking back":          {sdkGame(), func(w *world) { w.Allocate(); w.Shutdown(); w.Shutdown(); w.must(w.TakeBackShutdown()) }, v1alpha1.GameAllocated, true},
		"told to shut down it takes nobody":     {plainGame(), func(w *world) { w.answered(func(a *reportapi.Answer) { a.Shutdown = true }) }, v1alpha1.GameReady, false},
		"told to drain it takes nobody new":     {plainGame(), func(w *world) { w.answered(func(a *reportapi.Answer) { a.Drain = true }) }, v1alpha1.GameReady, false},
		"no container, nobody":                  {plainGame(), func(w *world) { w.answered(func(a *reportapi.Answer) { a.GameStarted = nil }) }, v1alpha1.GameStarting, false},
		"its word proves that it runs": {sdkGame(), func(w *world) {
			w.answered(func(a *reportapi.Answer) { a.GameStarted = nil })
			w.later(time.Millisecond)
			w.Ready()
		}, v1alpha1.GameReady, true},
		"silent from the first ping on":        {readySDK(), func(w *world) { w.Ready(); w.Ping(); w.later(30 * time.Second) }, v1alpha1.GameUnhealthy, false},
		"silent, but young":                    {readySDK(), func(w *world) { w.Ready(); w.Ping(); w.later(29 * time.Second) }, v1alpha1.GameReady, true},
		"silent for less than three periods":   {readySDK(), func(w *world) { w.Ready(); w.later(time.Hour); w.Ping(); w.later(15*time.Second - 1) }, v1alpha1.GameReady, true},
		"silent for three periods":             {readySDK(), func(w *world) { w.Ready(); w.later(time.Hour); w.Ping(); w.later(15 * time.Second) }, v1alpha1.GameUnhealthy, false},
		"a ping heals":                         {readySDK(), func(w *world) { w.Allocate(); w.Ping(); w.later(time.Hour); w.Ping() }, v1alpha1.GameAllocated, true},
		"other words don't heal":               {readySDK(), func(w *world) { w.Ping(); w.later(time.Hour); w.Ready() }, v1alpha1.GameUnhealthy, false},
		"a game that never pings isn't judged": {readySDK(), func(w *world) { w.Ready(); w.later(time.Hour) }, v1alpha1.GameReady, true},
		"two probes unanswered":                {probedGame(), func(w *world) { w.later(time.Hour); w.Answered(w.clock.Now(), 0, 0); w.unanswered(2) }, v1alpha1.GameReady, true},
		"three probes unanswered":              {probedGame(), func(w *world) { w.later(time.Hour); w.Answered(w.clock.Now(), 0, 0); w.unanswered(3) }, v1alpha1.GameUnhealthy, false},
		"three probes unanswered, but young":   {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.unanswered(3) }, v1alpha1.GameReady, true},
		"an answer heals": {probedGame(), func(w *world) {
			w.later(time.Hour)
			w.Answered(w.clock.Now(), 0, 0)
			w.unanswered(30)
			w.Answered(w.clock.Now(), 0, 0)
		}, v1alpha1.GameReady, true},
		"a game that never answered still boots":     {probedGame(), func(w *world) { w.unanswered(1000) }, v1alpha1.GameStarting, false},
		"a disabled check":                           {unjudged(), func(w *world) { w.Ready(); w.Ping(); w.later(time.Hour) }, v1alpha1.GameReady, true},
		"a game that asked for its end isn't judged": {readySDK(), func(w *world) { w.Ping(); w.Shutdown(); w.later(time.Hour) }, v1alpha1.GameShutdown, false},
		"a new process boots again":                  {sdkGame(), func(w *world) { w.Ready(); w.later(2 * time.Second); w.restartsGame() }, v1alpha1.GameStarting, false},
		"a new process is young again":               {readySDK(), func(w *world) { w.later(time.Hour); w.restartsGame(); w.Ready(); w.Ping(); w.later(20 * time.Second) }, v1alpha1.GameReady, true},
		"a new probed process hasn't answered":       {probedGame(), func(w *world) { w.Answered(w.clock.Now(), 0, 0); w.later(2 * time.Second); w.restartsGame() }, v1alpha1.GameStarting, false},
		"an Unhealthy one that starts again is well": {readySDK(), func(w *world) { w.Ping(); w.later(time.Hour); w.restartsGame() }, v1alpha1.GameStarting, false},
		"what the new process said in its first second": {sdkGame(), func(w *world) {
			w.later(2*time.Second + 100*time.Millisecond)
			w.Ready()
			w.later(200 * time.Millisecond)
			w.restartsGame()
		}, v1alpha1.GameReady, true},
		"a replica that is behind": {sdkGame(), func(w *world) {
			w.later(time.Hour)
			w.restartsGame()
			w.Ready()
			w.answered(func(a *reportapi.Answer) { a.GameStarted = wholeSecond(morning) })
		}, v1alpha1.GameReady, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := answeredWorld(t, c.config)
			c.happen(w)
			w.wantState(c.want)
			w.wantReady(c.ready)
			if message := w.Snapshot().Game.Message; (message != "") != (c.want == v1alpha1.GameUnhealthy) {
				t.Errorf("message %q in state %s", message, c.want)
			}
		})
	}
}

func readySDK() Config { return sdkGame() }

// A sidecar that was started after the game needs nobody to tell it that the game was started: the
// operator learns that from kubelet, and says before that it doesn't run.
func TestASidecarAfterTheGameKnowsThatItWasStarted(t *testing.T) {
	after := plainGame()
	after.AfterGame = true
	late := func(w *world) { w.answered(func(a *reportapi.Answer) { a.GameStarted = nil }) }
	started := func(w *world) { w.answered(func(a *reportapi.Answer) { a.GameStarted = wholeSecond(morning) }) }
	ended := func(w *world) {
		w.answered(func(a *reportapi.Answer) { a.GameStarted, a.GameEnded = nil, wholeSecond(w.clock.Now()) })
	}
	for name, c := range map[string]struct {
		config Config
		happen []func(*world)
		ready  bool
	}{
		"before the operator answers":                {after, nil, true},
		"while the operator hasn't heard of it":      {after, []func(*world){late}, true},
		"once it has":                                {after, []func(*world){late, started}, true},
		"when a replica hasn't that the others have": {after, []func(*world){started, late}, false},
		"when it has ended":                          {after, []func(*world){late, ended}, false},
		"for a sidecar that was started first":       {plainGame(), []func(*world){late}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.config)
			for _, happen := range c.happen {
				happen(w)
			}
			w.wantReady(c.ready)
		})
	}
}

func TestAPlainGameHasReportedNothing(t *testing.T) {
	w := answeredWorld(t, plainGame())
	if w.Snapshot().Game.Reported {
		t.Error("a game that said nothing has reported")
	}
	w.Ping()
	w.must(w.SetAnnotation("map", "dust"))
	if w.Snapshot().Game.Reported {
		t.Error("a game that only pings and describes itself has reported")
	}
	w.Ready()
	if !w.Snapshot().Game.Reported {
		t.Error("a game that called Ready hasn't reported")
	}
	w.later(2 * time.Second)
	w.restartsGame()
	if w.Snapshot().Game.Reported {
		t.Error("a process that said nothing has reported what the one before it did")
	}
}

func TestShutdownCantBeTakenBackOnceTheOperatorActs(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.Shutdown()
	w.answered(func(a *reportapi.Answer) { a.Shutdown = true })
	wantKind(t, w.TakeBackShutdown(), TooLate)
	w.wantState(v1alpha1.GameShutdown)
}

// TestTimePassesByItself sees that who watches hears of what no call brings.
func TestTimePassesByItself(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	waits := func(want v1alpha1.GameState, step time.Duration) {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			snapshot, changed := w.Watch()
			if snapshot.Game.State == want {
				return
			}
			if w.clock.HasWaiters() {
				w.clock.Step(step)
			}
			select {
			case <-changed:
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("state %s, want %s", snapshot.Game.State, want)
			}
		}
	}
	// A change that Run isn't waiting for yet comes sooner than what it waits for.
	w.Reserve(time.Hour)
	_, changed := w.Watch()
	w.Ping()
	waits(v1alpha1.GameUnhealthy, 30*time.Second)
	select {
	case <-changed:
	default:
		t.Error("who watches wasn't told")
	}
	w.Ping()
	waits(v1alpha1.GameReserved, 0)
	w.Shutdown()
	if !w.Snapshot().DeletionAllowed {
		t.Error("not deletable")
	}
}

func TestWhoWatchesHearsOfChangesOnly(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.Ready()
	_, changed := w.Watch()
	w.Ready()
	w.Ping()
	w.answered(nil)
	select {
	case <-changed:
		t.Error("nothing changed")
	default:
	}
	w.Allocate()
	select {
	case <-changed:
	default:
		t.Error("who watches wasn't told")
	}
}

func TestAFullGameGetsNobodyElseWhereItsGameTypeSaysSo(t *testing.T) {
	w := answeredWorld(t, probedGame())
	w.Answered(w.clock.Now(), 20, 20)
	w.wantReady(true)
	w.answered(func(a *reportapi.Answer) { a.SkipFull = true })
	w.wantReady(false)
	w.Answered(w.clock.Now(), 19, 20)
	w.wantReady(true)
	w.Answered(w.clock.Now(), 20, 0)
	w.wantReady(false)
	boundless := answeredWorld(t, probedGame())
	boundless.answered(func(a *reportapi.Answer) { a.SkipFull, a.Server.Capacity = true, 0 })
	boundless.Answered(boundless.clock.Now(), 500, 0)
	boundless.wantReady(true)
}
