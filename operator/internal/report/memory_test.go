package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// What a sidecar reports for the one after it comes back from any replica.
func TestMemoryIsRestored(t *testing.T) {
	c := cluster(t)
	one, two := start(t, c, "127.0.0.1:0"), start(t, c, "127.0.0.1:0")
	one.memory = `{"phase":"Allocated","started":"2026-01-02T12:00:00Z","countsPlayers":true,"leaving":true,"later":true}`
	one.say(next(6, func(r *reportapi.Report) {
		r.DeletionAllowed, r.Game.State, r.Game.Reported = false, v1alpha1.GameUnhealthy, true
	}))
	one.eventually("the report is written", func() bool { return one.read().Status.Game.State == v1alpha1.GameUnhealthy })
	want := &reportapi.Memory{Phase: v1alpha1.GameAllocated, Started: new(noon), CountsPlayers: true, Leaving: true}
	again := next(0, func(r *reportapi.Report) { r.Instance, r.Restore = "two", true })
	for name, r := range map[string]*replica{"the same": one, "another": two} {
		if diff := cmp.Diff(want, r.say(again).RestoredMemory); diff != "" {
			t.Errorf("%s replica restores (-want +got):\n%s", name, diff)
		}
	}
	one.memory = ""
	one.say(next(7))
	one.eventually("the next one is written", func() bool { return one.read().Status.Game.State == v1alpha1.GameReady })
	if m := two.say(again).RestoredMemory; m != nil {
		t.Errorf("a sidecar that reports none leaves %+v", m)
	}
}

// That a game ends once nobody plays is written though nothing else has changed: its sidecar may come to
// another replica.
func TestThatAGameIsLeavingIsWrittenByItself(t *testing.T) {
	c := cluster(t)
	one, two := start(t, c, "127.0.0.1:0"), start(t, c, "127.0.0.1:0")
	one.memory = `{"started":"2026-01-02T12:00:00Z"}`
	one.say(next(6))
	one.memory = `{"started":"2026-01-02T12:00:00Z","leaving":true}`
	for sequence := range uint64(20) {
		one.say(next(7 + sequence))
	}
	one.eventually("it is written", func() bool { return one.read().Status.Game.Leaving })
	want := &reportapi.Memory{Started: new(noon), Leaving: true}
	again := next(0, func(r *reportapi.Report) { r.Instance, r.Restore = "two", true })
	if diff := cmp.Diff(want, two.say(again).RestoredMemory); diff != "" {
		t.Errorf("another replica restores (-want +got):\n%s", diff)
	}
	if n := one.writes.Load(); n > 1 {
		t.Errorf("%d writes, want one", n)
	}
}

func TestAMemoryThatCantBeIsNone(t *testing.T) {
	for header, want := range map[string]*reportapi.Memory{
		"":                      nil,
		"no JSON":               nil,
		`{"phase":"Somewhere"}`: nil,
		`{"phase":"Unhealthy"}`: nil,
		`{"started":"soon"}`:    nil,
		`{"later":"` + strings.Repeat("x", reportapi.MaxMemoryBytes) + `"}`: nil,
		`{}`:                   {},
		`{"phase":"Starting"}`: {Phase: v1alpha1.GameStarting},
	} {
		if diff := cmp.Diff(want, memoryOf([]byte(header))); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", header, diff)
		}
	}
}

// When the process began is written with what it says, and alone only where another one is written: what it
// said is taken for that one's.
func TestANewProcessIsWritten(t *testing.T) {
	began := func(at time.Time) *said {
		s := report()
		s.report.Memory = &reportapi.Memory{Started: &at}
		return s
	}
	stored := func(s *v1alpha1.Server) { s.Status.Game.Started = &metav1.Time{Time: noon} }
	for name, c := range map[string]struct {
		server *v1alpha1.Server
		said   *said
		want   string
	}{
		"none is written":   {server(), began(noon), ""},
		"it is written":     {server(stored), began(noon), ""},
		"an earlier one is": {server(stored), began(noon.Add(time.Minute)), reasonOther},
		"kinds of an earlier version store nothing": {server(), func() *said {
			s := began(noon)
			s.report.Memory.CountsPlayers, s.report.Memory.Phase = true, v1alpha1.GameReady
			return s
		}(), ""},
		"this one isn't known":       {server(stored), report(), reasonOther},
		"something else has changed": {server(), func() *said { s := began(noon); players(1)(s.report); return s }(), reasonPlayers},
	} {
		got := compare(c.server, c.said)
		if got.reason != c.want {
			t.Errorf("%s: written because of %q, want %q", name, got.reason, c.want)
		}
		if got.reason == reasonPlayers && !got.status.Game.Started.Time.Equal(noon) {
			t.Errorf("%s: started %s, want %s", name, got.status.Game.Started, noon)
		}
	}
}

// life is a Server whose reports are taken and written, where kinds store what they do.
type life struct {
	t        *testing.T
	table    *table
	server   *v1alpha1.Server
	instance string
	sequence uint64
	// stores drops what the kind doesn't store.
	stores func(*v1alpha1.GameStatus)
}

// goesOn has some reports say the same, and each be written that is to be. It returns how many were.
func (l *life) goesOn(state v1alpha1.GameState, memory *reportapi.Memory) (writes int) {
	l.t.Helper()
	for range 20 {
		l.sequence++
		s := report(func(r *reportapi.Report) {
			r.Instance, r.Sequence, r.Memory, r.Game.State = l.instance, l.sequence, memory, state
		})
		if l.server.Status.Game != nil {
			s.base = l.server.Status.Game.Instance
		}
		if l.table.take("server-1", lobby1(), s) == nil {
			l.t.Fatalf("report %d isn't taken", l.sequence)
		}
		c := compare(l.server, s)
		if c.none() {
			continue
		}
		writes++
		l.server = l.server.DeepCopy()
		l.server.Status.DeletionAllowed, l.server.Status.Game = c.status.DeletionAllowed, c.status.Game
		l.stores(l.server.Status.Game)
	}
	return writes
}

// What is remembered costs no write in the life of a Server that isn't leaving, and one with each change of that.
// Kinds of an earlier version store less, and no Server is written again and again for that.
func TestTheWritesOfAMemory(t *testing.T) {
	started := &reportapi.Memory{Started: new(noon)}
	leaves := &reportapi.Memory{Started: new(noon), Leaving: true}
	anew := &reportapi.Memory{Started: new(noon.Add(time.Hour))}
	type writes struct{ Ready, Leaving, TakenBack, LeavingAgain, AnotherReplica, AnotherSidecar, BackAgain, Anew int }
	for name, c := range map[string]struct {
		stores func(*v1alpha1.GameStatus)
		want   writes
	}{
		"all is stored": {func(*v1alpha1.GameStatus) {}, writes{Ready: 1, Leaving: 1, TakenBack: 1, LeavingAgain: 1, Anew: 1}},
		"kinds that store when the game started": {func(g *v1alpha1.GameStatus) {
			g.Leaving = false
		}, writes{Ready: 1, Leaving: 1, LeavingAgain: 1, AnotherReplica: 1, AnotherSidecar: 1, BackAgain: 1, Anew: 1}},
		"kinds that store nothing": {func(g *v1alpha1.GameStatus) {
			g.Leaving, g.Started, g.Phase, g.CountsPlayers = false, nil, "", false
		}, writes{Ready: 1, Leaving: 1, LeavingAgain: 1, AnotherReplica: 1, AnotherSidecar: 1, BackAgain: 1}},
	} {
		l := &life{t: t, table: newTable(), server: server(unreported), instance: "one", stores: c.stores}
		got := writes{}
		got.Ready = l.goesOn(v1alpha1.GameStarting, started) + l.goesOn(v1alpha1.GameReady, started)
		got.Leaving = l.goesOn(v1alpha1.GameReady, leaves)
		got.TakenBack = l.goesOn(v1alpha1.GameReady, started)
		got.LeavingAgain = l.goesOn(v1alpha1.GameReady, leaves)
		l.table = newTable()
		got.AnotherReplica = l.goesOn(v1alpha1.GameReady, leaves)
		l.instance, l.sequence = "two", 0
		l.table.announce("server-1", "two")
		got.AnotherSidecar = l.goesOn(v1alpha1.GameReady, leaves)
		l.sequence += 5 // which went to another replica
		got.BackAgain = l.goesOn(v1alpha1.GameReady, leaves)
		got.Anew = l.goesOn(v1alpha1.GameReady, anew)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", name, diff)
		}
	}
}

// What another replica wrote in between doesn't stay, nor what one of an earlier version left in its place.
func TestWhatAnotherReplicaWroteOfLeavingDoesNotStay(t *testing.T) {
	leaves, stays := &reportapi.Memory{Started: new(noon), Leaving: true}, &reportapi.Memory{Started: new(noon)}
	for name, c := range map[string]struct{ before, now *reportapi.Memory }{
		"it was taken back there, and is said again here": {leaves, leaves},
		"it was said there, and is taken back here":       {stays, stays},
		"it is taken back, and is stored still":           {leaves, stays},
	} {
		l := &life{t: t, table: newTable(), server: server(unreported), instance: "one", stores: func(*v1alpha1.GameStatus) {}}
		l.goesOn(v1alpha1.GameReady, c.before)
		l.sequence++
		l.server = l.server.DeepCopy()
		l.server.Status.Game.Sequence, l.server.Status.Game.Leaving = int64(l.sequence), !c.now.Leaving
		if n := l.goesOn(v1alpha1.GameReady, c.now); n != 1 || l.server.Status.Game.Leaving != c.now.Leaving {
			t.Errorf("%s: %d writes, leaving %t; want one, of %t", name, n, l.server.Status.Game.Leaving, c.now.Leaving)
		}
	}
}

// A sidecar of an earlier version doesn't say whether its game is leaving.
func TestAnEarlierSidecarsMemoryCostsNoWrite(t *testing.T) {
	l := &life{t: t, table: newTable(), server: server(unreported), instance: "one", stores: func(*v1alpha1.GameStatus) {}}
	for name, memory := range map[string]*reportapi.Memory{"a memory": {Started: new(noon)}, "none": nil} {
		l.server = server(unreported)
		if n := l.goesOn(v1alpha1.GameReady, memory); n != 1 || l.server.Status.Game.Leaving {
			t.Errorf("with %s, %d writes of %+v; want one, and not leaving", name, n, l.server.Status.Game)
		}
	}
}
