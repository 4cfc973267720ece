package game

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// before is what a sidecar reported before it was replaced.
func before() *reportapi.Game {
	until := morning.Add(time.Hour)
	return &reportapi.Game{
		State: v1alpha1.GameReserved, Reported: true, ReservedUntil: &until,
		Permission:  v1alpha1.DeletionDenied,
		Players:     &v1alpha1.PlayersStatus{Current: 2, Capacity: 8, IDs: []string{"ann", "bob"}},
		Counters:    map[string]v1alpha1.Counter{"rooms": {Count: 3, Capacity: 5}},
		Lists:       map[string]v1alpha1.List{"maps": {Capacity: 2, Values: []string{"sand"}}},
		Labels:      map[string]string{"agones.dev/sdk-mode": "ctf"},
		Annotations: map[string]string{"agones.dev/sdk-map": "dust"},
	}
}

// keeping has a Server with a counter and a list of its spec.
func keeping(a *reportapi.Answer) {
	a.Server.Counters = map[string]v1alpha1.Counter{"rooms": {Count: 1, Capacity: 4}}
	a.Server.Lists = map[string]v1alpha1.List{"maps": {Capacity: 3}}
}

func restoring(g *reportapi.Game) func(*reportapi.Answer) {
	return func(a *reportapi.Answer) {
		keeping(a)
		a.Restored = g
	}
}

func TestBeforeTheOperatorAnswers(t *testing.T) {
	w := newWorld(t, sdkGame())
	w.Ready()
	w.wantReady(false)
	if w.Snapshot().Restored {
		t.Error("restored from nothing")
	}
	_, err := w.Counter("rooms")
	wantKind(t, err, Unavailable)
	_, err = w.AddListValue("maps", "sand")
	wantKind(t, err, Unavailable)

	plain := newWorld(t, plainGame())
	plain.wantReady(true)
	plain.answered(func(a *reportapi.Answer) { a.Drain = true })
	plain.wantReady(false)
}

func TestRestoringBringsAllBack(t *testing.T) {
	w := newWorld(t, sdkGame())
	w.answered(restoring(before()))
	if diff := cmp.Diff(*before(), w.Snapshot().Game); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	w.wantDeletable(false)
	w.wantReady(true)
	// It is asked for once.
	w.answered(restoring(&reportapi.Game{State: v1alpha1.GameShutdown, Reported: true}))
	w.wantState(v1alpha1.GameReserved)
	// What was restored goes with the process that said it; the Server's stays.
	w.later(2 * time.Second)
	w.restartsGame()
	want := reportapi.Game{
		State:    v1alpha1.GameStarting,
		Counters: before().Counters, Lists: before().Lists, Labels: before().Labels, Annotations: before().Annotations,
	}
	if diff := cmp.Diff(want, w.Snapshot().Game); diff != "" {
		t.Errorf("after a restart of the game (-want +got):\n%s", diff)
	}
}

func TestWhatIsSaidSinceTheStartWinsOverWhatIsRestored(t *testing.T) {
	w := newWorld(t, sdkGame())
	w.Allocate()
	w.Permit(true)
	w.must(w.SetPlayers(0, nil))
	w.must(w.SetPlayerCapacity(30))
	w.must(w.SetLabel("mode", "solo"))
	w.answered(restoring(before()))
	want := *before()
	want.State, want.ReservedUntil, want.Permission = v1alpha1.GameAllocated, nil, v1alpha1.DeletionAllowed
	want.Players = &v1alpha1.PlayersStatus{Current: 0, Capacity: 30}
	want.Labels = map[string]string{"agones.dev/sdk-mode": "solo"}
	if diff := cmp.Diff(want, w.Snapshot().Game); diff != "" {
		t.Errorf("game (-want +got):\n%s", diff)
	}
}

func TestRestoringAState(t *testing.T) {
	cases := map[string]struct {
		config Config
		was    reportapi.Game
		happen func(*world)
		want   v1alpha1.GameState
	}{
		"Ready":     {sdkGame(), reportapi.Game{State: v1alpha1.GameReady, Reported: true}, nil, v1alpha1.GameReady},
		"Starting":  {sdkGame(), reportapi.Game{State: v1alpha1.GameStarting, Reported: true}, nil, v1alpha1.GameStarting},
		"Allocated": {plainGame(), reportapi.Game{State: v1alpha1.GameAllocated, Reported: true}, nil, v1alpha1.GameAllocated},
		"Shutdown":  {plainGame(), reportapi.Game{State: v1alpha1.GameShutdown, Reported: true}, nil, v1alpha1.GameShutdown},
		"a reservation that ended meanwhile": {
			sdkGame(),
			reportapi.Game{State: v1alpha1.GameReserved, Reported: true, ReservedUntil: new(morning)},
			nil, v1alpha1.GameReady,
		},
		"a probed game's is Ready before the next answer": {
			probedGame(),
			reportapi.Game{State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: 2}},
			nil, v1alpha1.GameReady,
		},
		"a probed game's, which is silent now": {
			probedGame(),
			reportapi.Game{State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: 2}},
			func(w *world) { w.later(time.Hour); w.unanswered(3) }, v1alpha1.GameUnhealthy,
		},
		"Unhealthy": {
			sdkGame(),
			reportapi.Game{State: v1alpha1.GameUnhealthy, Reported: true, Message: "silent"},
			nil, v1alpha1.GameUnhealthy,
		},
		"Unhealthy, until it pings": {
			sdkGame(),
			reportapi.Game{State: v1alpha1.GameUnhealthy, Reported: true, Message: "silent"},
			func(w *world) { w.Ping() }, v1alpha1.GameReady,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.config)
			w.answered(restoring(&c.was))
			if c.happen != nil {
				c.happen(w)
			}
			w.wantState(c.want)
		})
	}
	t.Run("a ping before the operator answered counts", func(t *testing.T) {
		w := newWorld(t, sdkGame())
		w.Ping()
		w.answered(restoring(&reportapi.Game{State: v1alpha1.GameUnhealthy, Reported: true}))
		w.wantState(v1alpha1.GameReady)
	})
	t.Run("a restored Unhealthy game has nobody after five minutes", func(t *testing.T) {
		w := newWorld(t, sdkGame())
		w.later(time.Hour)
		w.answered(restoring(&reportapi.Game{
			State: v1alpha1.GameUnhealthy, Reported: true, Players: &v1alpha1.PlayersStatus{Current: 1},
		}))
		w.wantDeletable(false)
		w.later(goneAfter - time.Second)
		w.wantDeletable(false)
		w.later(time.Second)
		w.wantDeletable(true)
	})
}

func TestAProbesPlayersAreRestoredUntilItsFirstAnswer(t *testing.T) {
	w := newWorld(t, probedGame())
	// Probes that fail before anything is known count for nothing later.
	w.unanswered(20)
	w.later(time.Hour)
	w.answered(restoring(&reportapi.Game{
		State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: 2, Capacity: 8},
	}))
	w.wantState(v1alpha1.GameReady)
	w.wantPlayers(2, true)
	w.wantDeletable(false)
	w.Answered(w.clock.Now(), 0, 8)
	w.wantPlayers(0, true)
	w.wantDeletable(true)
}

func TestMetadataThatDoesntFitIsntRestored(t *testing.T) {
	w := newWorld(t, sdkGame())
	w.must(w.SetLabel("new", "1"))
	was := &reportapi.Game{State: v1alpha1.GameStarting, Labels: map[string]string{}}
	for i := range reportapi.MaxMetadata {
		was.Labels[fmt.Sprintf("agones.dev/sdk-old%d", i)] = "1"
	}
	w.answered(restoring(was))
	labels := w.Snapshot().Game.Labels
	if len(labels) != reportapi.MaxMetadata || labels["agones.dev/sdk-new"] != "1" {
		t.Errorf("%d labels, new one %q", len(labels), labels["agones.dev/sdk-new"])
	}
}

func TestAnAnnotationThatCantBeReportedIsntRestored(t *testing.T) {
	w := newWorld(t, sdkGame())
	w.answered(restoring(&reportapi.Game{State: v1alpha1.GameReady, Annotations: map[string]string{
		"agones.dev/sdk-long": strings.Repeat("x", reportapi.MaxAnnotationBytes+1),
		"agones.dev/sdk-most": strings.Repeat("x", reportapi.MaxAnnotationBytes),
	}}))
	want := []string{"agones.dev/sdk-most"}
	if diff := cmp.Diff(want, slices.Collect(maps.Keys(w.Snapshot().Game.Annotations))); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestEachPlayerGoesWithTheProcessThatNamedThem(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.connect("old")
	w.connect("both")
	w.later(2 * time.Second)
	started := wholeSecond(w.clock.Now())
	// In the second in which a process starts the one before it may have spoken.
	w.connect("old, late")
	w.later(time.Second)
	// The new process speaks before the operator tells that it is a new one.
	w.connect("new")
	if added, err := w.PlayerConnect("both"); err != nil || added {
		t.Fatalf("a second connect: %t, %v", added, err)
	}
	w.later(100 * time.Millisecond)
	w.answered(func(a *reportapi.Answer) { a.GameStarted = started })
	if diff := cmp.Diff([]string{"both", "new"}, w.Snapshot().Game.Players.IDs); diff != "" {
		t.Errorf("players (-want +got):\n%s", diff)
	}
	if got := w.Snapshot().Restarts; got != 1 {
		t.Errorf("%d restarts, want 1", got)
	}
	w.answered(nil)
	if got := w.Snapshot().Restarts; got != 1 {
		t.Errorf("%d restarts after the same was told again, want 1", got)
	}
}

func TestAGameThatEndedHasNobody(t *testing.T) {
	w := answeredWorld(t, sdkGame())
	w.Allocate()
	w.connect("ann")
	w.later(2 * time.Second)
	w.connect("bob")
	w.answered(func(a *reportapi.Answer) {
		a.GameStarted, a.GameEnded = nil, wholeSecond(w.clock.Now())
	})
	w.wantPlayers(0, false)
	w.wantDeletable(true)
}

// TestPlayersWhoComeAndGoBeforeTheOperatorAnswers has a game go on while its sidecar
// starts again and no operator can be reached.
func TestPlayersWhoComeAndGoBeforeTheOperatorAnswers(t *testing.T) {
	leave := func(w *world, id string) {
		_, err := w.PlayerDisconnect(id)
		w.must(err)
	}
	cases := map[string]struct {
		happen func(w *world)
		want   []string
	}{
		"one comes":                     {func(w *world) { w.connect("cid") }, []string{"ann", "bob", "cid"}},
		"one leaves":                    {func(w *world) { leave(w, "ann") }, []string{"bob"}},
		"one leaves and comes back":     {func(w *world) { leave(w, "ann"); w.connect("ann") }, []string{"bob", "ann"}},
		"one comes and leaves":          {func(w *world) { w.connect("cid"); leave(w, "cid") }, []string{"ann", "bob"}},
		"one who was there comes again": {func(w *world) { w.connect("ann") }, []string{"bob", "ann"}},
		"all leave":                     {func(w *world) { leave(w, "ann"); leave(w, "bob") }, []string{}},
		"a number is the last word":     {func(w *world) { w.connect("cid"); w.must(w.SetPlayers(3, nil)) }, nil},
		"a number makes an end of the names before": {func(w *world) {
			w.must(w.SetPlayers(3, nil))
			w.connect("cid")
		}, []string{"cid"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sdkGame())
			w.Ready()
			c.happen(w)
			w.answered(restoring(&reportapi.Game{
				State: v1alpha1.GameReady, Reported: true,
				Players: &v1alpha1.PlayersStatus{Current: 2, Capacity: 20, IDs: []string{"ann", "bob"}},
			}))
			if diff := cmp.Diff(c.want, w.Snapshot().Game.Players.IDs); diff != "" {
				t.Errorf("players (-want +got):\n%s", diff)
			}
			w.wantDeletable(w.Snapshot().Game.Players.Current == 0)
		})
	}
}

func TestPlayersBeforeTheOperatorAnswersAreBounded(t *testing.T) {
	config := sdkGame()
	config.Capacity = 1
	w := newWorld(t, config)
	before := &reportapi.Game{State: v1alpha1.GameReady, Players: &v1alpha1.PlayersStatus{Current: reportapi.MaxPlayerIDs}}
	// Not its capacity, which who left may have made room in, but what can be named.
	for i := range reportapi.MaxPlayerIDs {
		w.connect(fmt.Sprint("new", i))
		_, err := w.PlayerDisconnect(fmt.Sprint("gone", i))
		w.must(err)
		before.Players.IDs = append(before.Players.IDs, fmt.Sprint("old", i))
	}
	_, err := w.PlayerConnect("one more")
	wantKind(t, err, OutOfRange)
	_, err = w.PlayerDisconnect("one more")
	wantKind(t, err, Unavailable)
	w.answered(restoring(before))
	got := w.Snapshot().Game.Players
	if got.Current != 2*reportapi.MaxPlayerIDs || len(got.IDs) != reportapi.MaxPlayerIDs {
		t.Errorf("%d players of whom %d are named", got.Current, len(got.IDs))
	}
	_, err = w.PlayerConnect("one more")
	wantKind(t, err, OutOfRange)
}

// TestWhetherAGameHasReportedIsRestored has a probed game call Ready, boot on, and
// get another sidecar.
func TestWhetherAGameHasReportedIsRestored(t *testing.T) {
	for _, reported := range []bool{false, true} {
		w := newWorld(t, denying(probedGame()))
		w.Ping()
		w.answered(restoring(&reportapi.Game{State: v1alpha1.GameStarting, Reported: reported}))
		if got := w.Snapshot().Game.Reported; got != reported {
			t.Errorf("reported %t, want %t", got, reported)
		}
		w.wantDeletable(reported)
	}
}

// The status of a Server whose spec has a capacity shows that nobody plays before anything has said so.
func TestThatNobodyPlaysIsRestoredWhereItWasReported(t *testing.T) {
	for name, c := range map[string]struct {
		config    Config
		was       reportapi.Game
		state     v1alpha1.GameState
		players   bool
		deletable bool
	}{
		"a game that says nothing":           {denying(plainGame()), reportapi.Game{State: v1alpha1.GameReady}, v1alpha1.GameReady, false, false},
		"a game that boots and is probed":    {denying(probedGame()), reportapi.Game{State: v1alpha1.GameStarting}, v1alpha1.GameStarting, false, false},
		"one that boots and denied its end":  {denying(probedGame()), reportapi.Game{State: v1alpha1.GameStarting, Reported: true, Permission: v1alpha1.DeletionDenied}, v1alpha1.GameStarting, false, false},
		"a game that has answered its probe": {denying(probedGame()), reportapi.Game{State: v1alpha1.GameReady, Reported: true}, v1alpha1.GameReady, true, true},
		"a game that has said so":            {denying(plainGame()), reportapi.Game{State: v1alpha1.GameReady, Reported: true}, v1alpha1.GameReady, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.config)
			c.was.Players = &v1alpha1.PlayersStatus{Capacity: 16}
			w.answered(restoring(&c.was))
			w.wantState(c.state)
			w.wantPlayers(0, c.players)
			w.wantDeletable(c.deletable)
		})
	}
}

// That a game is well says that it takes players only where it said nothing else before its sidecar
// was replaced.
func TestBeingWellBeforeTheOperatorAnswers(t *testing.T) {
	in := func(state v1alpha1.GameState) *reportapi.Game {
		return &reportapi.Game{State: state, Reported: true}
	}
	for name, c := range map[string]struct {
		config Config
		was    *reportapi.Game
		want   v1alpha1.GameState
	}{
		"nothing is known":         {sdkGame(), nil, v1alpha1.GameReady},
		"it was starting":          {sdkGame(), in(v1alpha1.GameStarting), v1alpha1.GameReady},
		"it was Allocated":         {sdkGame(), in(v1alpha1.GameAllocated), v1alpha1.GameAllocated},
		"it was Reserved":          {sdkGame(), in(v1alpha1.GameReserved), v1alpha1.GameReserved},
		"it asked for its end":     {sdkGame(), in(v1alpha1.GameShutdown), v1alpha1.GameShutdown},
		"it had become silent":     {sdkGame(), in(v1alpha1.GameUnhealthy), v1alpha1.GameReady},
		"it is Ready by its probe": {probedGame(), in(v1alpha1.GameStarting), v1alpha1.GameStarting},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.config)
			w.Healthy()
			w.answered(restoring(c.was))
			w.wantState(c.want)
			w.wantDeletable(c.want != v1alpha1.GameAllocated && c.want != v1alpha1.GameReserved)
		})
	}
}

func TestWhetherAnEndCanBeTakenBackIsntKnownAtFirst(t *testing.T) {
	w := newWorld(t, sdkGame())
	wantKind(t, w.TakeBackShutdown(), Unavailable)
	w.answered(restoring(&reportapi.Game{State: v1alpha1.GameShutdown, Reported: true}))
	w.wantState(v1alpha1.GameShutdown)
	w.must(w.TakeBackShutdown())
	w.wantState(v1alpha1.GameStarting)
}

// A game whose capacity is higher than its Server's goes on counting while its sidecar starts again.
func TestACountBeforeTheOperatorAnswersIsTaken(t *testing.T) {
	config := plainGame()
	config.Capacity = 16
	w := newWorld(t, config)
	w.must(w.SetPlayers(60, nil))
	wantKind(t, w.SetPlayers(60, new(int64(32))), OutOfRange)
	w.answered(restoring(&reportapi.Game{
		State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: 50, Capacity: 64},
	}))
	if diff := cmp.Diff(&v1alpha1.PlayersStatus{Current: 60, Capacity: 64}, w.Snapshot().Game.Players); diff != "" {
		t.Errorf("players (-want +got):\n%s", diff)
	}
	wantKind(t, w.SetPlayers(65, nil), OutOfRange)

	w = newWorld(t, config)
	w.must(w.SetPlayerCapacity(32))
	wantKind(t, w.SetPlayers(33, nil), OutOfRange)
}

// next is another sidecar of the same game, which the operator hasn't answered.
func (w *world) next() *world {
	last := w.Snapshot()
	after := &world{Game: New(w.core.config, w.clock), t: w.t, clock: w.clock, answer: w.answer}
	after.answer.Restored = &last.Game
	if last.Memory != (reportapi.Memory{}) {
		after.answer.RestoredMemory = &last.Memory
	}
	return after
}

// A broken game is in use all the same, though nobody has counted its players.
func TestWhatABrokenGameWasIsRestored(t *testing.T) {
	for name, c := range map[string]struct {
		was  func(w *world)
		want v1alpha1.GameState
	}{
		"Allocated": {func(w *world) { w.Allocate() }, v1alpha1.GameAllocated},
		"Reserved":  {func(w *world) { w.Reserve(time.Hour) }, v1alpha1.GameReserved},
		"Ready":     {func(w *world) { w.Ready() }, v1alpha1.GameReady},
		"starting":  {func(w *world) { w.must(w.SetPlayers(0, nil)) }, v1alpha1.GameStarting},
	} {
		t.Run(name, func(t *testing.T) {
			w := answeredWorld(t, sdkGame())
			c.was(w)
			w.Ping()
			w.later(time.Minute)
			inUse := c.want != v1alpha1.GameReady && c.want != v1alpha1.GameStarting
			w.wantGame(v1alpha1.GameUnhealthy, !inUse, "silent")
			w = w.next()
			w.answered(nil)
			w.wantGame(v1alpha1.GameUnhealthy, !inUse, "in another sidecar")
			w = w.next()
			w.answered(nil)
			w.wantGame(v1alpha1.GameUnhealthy, !inUse, "in a third one")
			w.Ping()
			w.wantGame(c.want, !inUse, "well again")
			if until := w.Snapshot().Game.ReservedUntil; (until != nil) != (c.want == v1alpha1.GameReserved) {
				t.Errorf("reserved until %s", until)
			}
			if m := w.Snapshot().Memory.Phase; m != "" {
				t.Errorf("the phase %s is kept of a game that is well", m)
			}
		})
	}
	w := newWorld(t, sdkGame())
	w.answered(restoring(&reportapi.Game{State: v1alpha1.GameUnhealthy, Reported: true}))
	w.Ping()
	w.wantGame(v1alpha1.GameReady, true, "well again, of which nothing is known")
}

// After a restart of its node a sidecar and its game both start again, and the operator may know of the new
// process before the sidecar asks. Its own end is restored, see TestAnEndOutlivesItsProcess.
func TestWhatADeadProcessSaidIsntRestored(t *testing.T) {
	was := func(game func(w *world)) (last, after *world) {
		last = newWorld(t, denying(sdkGame()))
		last.answered(keeping)
		game(last)
		last.must(last.SetLabel("mode", "ctf"))
		last.later(time.Minute)
		return last, last.next()
	}
	said := map[string]func(w *world){
		"players":      func(w *world) { w.Ready(); w.connect("ann") },
		"a number":     func(w *world) { w.must(w.SetPlayers(3, nil)) },
		"Allocated":    func(w *world) { w.Allocate() },
		"a permission": func(w *world) { w.Permit(true) },
		"a failure":    func(w *world) { w.Ready(); w.Failed() },
	}
	for name, game := range said {
		last, after := was(game)
		after.restartsGame()
		want := reportapi.Game{
			State: v1alpha1.GameStarting, Labels: last.Snapshot().Game.Labels,
			Counters: last.Snapshot().Game.Counters, Lists: last.Snapshot().Game.Lists,
		}
		if diff := cmp.Diff(want, after.Snapshot().Game, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s, of an earlier process (-want +got):\n%s", name, diff)
		}
		after.wantDeletable(false)

		_, after = was(game)
		after.answered(func(a *reportapi.Answer) { a.GameStarted, a.GameEnded = nil, wholeSecond(after.clock.Now()) })
		if got := after.Snapshot().Game; got.Reported {
			t.Errorf("%s, of a process that has ended: %+v", name, got)
		}

		for when, change := range map[string]func(*reportapi.Answer){
			"of this process":                           nil,
			"as a replica sees it that lags":            func(a *reportapi.Answer) { a.GameStarted = wholeSecond(morning.Add(-time.Hour)) },
			"as one does that knows nothing":            func(a *reportapi.Answer) { a.GameStarted = nil },
			"where the sidecar before was a former one": func(a *reportapi.Answer) { a.RestoredMemory = nil },
		} {
			last, after = was(game)
			after.answered(change)
			after.answered(func(a *reportapi.Answer) { a.GameStarted = wholeSecond(morning) })
			if diff := cmp.Diff(last.Snapshot().Game, after.Snapshot().Game, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s (-said +restored):\n%s", name, when, diff)
			}
			if got := after.Snapshot().Restarts; got != 0 {
				t.Errorf("%s, %s: %d restarts are counted", name, when, got)
			}
		}
	}
}

// What a probed game itself says of its players comes before its probe's answers in another sidecar, too.
func TestAProbedGamesOwnCountIsRestored(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(w *world)
		want v1alpha1.PlayersStatus
	}{
		"some play":                   {func(w *world) { w.must(w.SetPlayers(3, nil)) }, v1alpha1.PlayersStatus{Current: 3, Capacity: 20}},
		"nobody plays":                {func(w *world) { w.must(w.SetPlayers(0, nil)) }, v1alpha1.PlayersStatus{Capacity: 20}},
		"some play, of a number":      {func(w *world) { w.must(w.SetPlayers(3, new(int64(8)))) }, v1alpha1.PlayersStatus{Current: 3, Capacity: 8}},
		"one plays, who is named":     {func(w *world) { w.connect("ann") }, v1alpha1.PlayersStatus{Current: 1, Capacity: 20, IDs: []string{"ann"}}},
		"the one who was named left":  {func(w *world) { w.connect("ann"); _, err := w.PlayerDisconnect("ann"); w.must(err) }, v1alpha1.PlayersStatus{Capacity: 20}},
		"only its probe says so":      {func(w *world) { w.Answered(w.clock.Now(), 7, 20) }, v1alpha1.PlayersStatus{Current: 2, Capacity: 20}},
		"it counts, and has answered": {func(w *world) { w.Answered(w.clock.Now(), 7, 20); w.must(w.SetPlayers(3, nil)) }, v1alpha1.PlayersStatus{Current: 3, Capacity: 20}},
	} {
		t.Run(name, func(t *testing.T) {
			w := answeredWorld(t, probedGame())
			c.say(w)
			last := w.Snapshot().Game
			for range 2 {
				w = w.next()
				w.answered(nil)
				if diff := cmp.Diff(last, w.Snapshot().Game, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("restored (-last +now):\n%s", diff)
				}
			}
			w.Answered(w.clock.Now(), 2, 20)
			if diff := cmp.Diff(&c.want, w.Snapshot().Game.Players, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("players after an answer of the probe (-want +got):\n%s", diff)
			}
		})
	}
	// A game that boots may count before it answers.
	w := answeredWorld(t, probedGame())
	w.must(w.SetPlayers(3, nil))
	w = w.next()
	w.answered(nil)
	w.unanswered(20)
	w.later(time.Hour)
	w.wantState(v1alpha1.GameStarting)
	w.wantDeletable(false)
}
