package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// short is a trace of some weeks, of which the last one counts. With three of them the forecast has
// learnt by then.
func short(t *testing.T, seed uint64, weeks int) *Trace {
	t.Helper()
	trace, err := Generate(seed, weeks, weeks-1)
	if err != nil {
		t.Fatal(err)
	}
	return &trace
}

func TestNothingWrongHappens(t *testing.T) {
	trace := short(t, 7, 3)
	for _, p := range Policies() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			i := inspector{t: t}
			o, err := run(t.Context(), trace, &p, i.look)
			if err != nil {
				t.Fatal(err)
			}
			i.ran += time.Duration(i.servers) * (trace.Length - i.at)
			if i.ran != o.All.Ran {
				t.Errorf("Servers ran for %s, and %s were counted", i.ran, o.All.Ran)
			}
			checkWaits(t, trace, o)
			if asleep := i.slept > 0; asleep == p.alwaysOn {
				t.Errorf("it slept for %s", i.slept)
			}
			if i.scaled != o.All.Scaled {
				t.Errorf("the number of Servers was changed %d times, and %d were counted", i.scaled, o.All.Scaled)
			}
		})
	}
}

// inspector looks at the world after each event.
type inspector struct {
	t             *testing.T
	alive         []*server
	at            time.Duration
	servers       int
	desired       int32
	scaled        int
	ran, slept    time.Duration
	begun, failed bool
}

func (i *inspector) look(w *world, e event) {
	if i.failed {
		return
	}
	fail := func(format string, args ...any) {
		i.failed = true
		i.t.Errorf("at %s: "+format, append([]any{w.trace.Begin.Add(w.now)}, args...)...)
	}
	if !i.begun {
		i.begun, i.servers, i.desired = true, int(w.desired), w.desired
		if !w.policy.alwaysOn {
			i.servers, i.desired = 0, 0
		}
	}
	i.ran += time.Duration(i.servers) * (w.now - i.at)
	if i.desired == 0 {
		i.slept += w.now - i.at
	}
	before := i.desired
	i.at, i.servers, i.desired = w.now, len(w.servers), w.desired
	if before != w.desired {
		i.scaled++
	}

	// Nobody's Server goes, and none has more players than it has room for.
	playing, roomy := 0, false
	for _, s := range w.servers {
		playing += s.players
		roomy = roomy || s.hasRoom()
		if s.players > room || s.players < 0 || s.players > 0 && !s.ready {
			fail("%d play on a Server", s.players)
		}
	}
	for _, s := range i.alive {
		if s.deleted && s.players > 0 {
			fail("a Server went with %d players", s.players)
		}
	}
	i.alive = append(i.alive[:0], w.servers...)
	if playing != w.playing {
		fail("%d of %d players are on Servers", playing, w.playing)
	}
	if roomy && len(w.waiting) > 0 {
		fail("%d wait though there is room", len(w.waiting))
	}

	switch most := w.peak; {
	case w.desired < 0 || w.desired > most:
		fail("there are to be %d Servers of %d", w.desired, most)
	case w.desired == 0 && (w.playing > 0 || len(w.waiting) > 0 || len(w.servers) > 0):
		fail("it sleeps with %d players, %d who wait, and %d Servers", w.playing, len(w.waiting), len(w.servers))
	case w.desired == 0 && before > 0 && w.keepAwake > w.now:
		fail("it went to sleep while it was to be kept awake")
	case w.desired == 0 && e.kind == arrives:
		fail("it sleeps on when somebody comes")
	}
	// A webhook that doesn't answer changes nothing: the game still wakes and sleeps.
	_, asks := w.policy.asks()
	if asks && w.now >= w.trace.OutageFrom+polls && w.now < w.trace.OutageTo && before != w.desired && before != 0 && w.desired != 0 {
		fail("there are to be %d Servers instead of %d, and the webhook doesn't answer", w.desired, before)
	}
}

// checkWaits checks that each player's wait is counted, and none is longer than they wait.
func checkWaits(t *testing.T, trace *Trace, o *Outcome) {
	t.Helper()
	var all, counted []time.Duration
	for i, d := range o.waited {
		if d < 0 || d > patience {
			t.Fatalf("player %d waited for %s", i, d)
		}
		if d > 0 {
			all = append(all, d)
			if trace.Players[i].At >= trace.Counted {
				counted = append(counted, d)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(counted)
	if diff := cmp.Diff(all, o.All.Waits); diff != "" {
		t.Errorf("the waits of all weeks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(counted, o.Counted.Waits); diff != "" {
		t.Errorf("the waits that count (-want +got):\n%s", diff)
	}
	if o.All.Players != len(trace.Players) || o.Counted.Players >= o.All.Players || o.Counted.Ran >= o.All.Ran {
		t.Errorf("%d and %d players, %s and %s of Servers", o.All.Players, o.Counted.Players, o.All.Ran, o.Counted.Ran)
	}
}

func TestASeedGivesTheSameAgain(t *testing.T) {
	first, second, other := short(t, 3, 2), short(t, 3, 2), short(t, 4, 2)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the trace differs:\n%s", diff)
	}
	if len(first.Players) == len(other.Players) && first.Players[0] == other.Players[0] {
		t.Error("another seed gives the same trace")
	}
	for _, p := range Policies() {
		if p.Name != "forecast+buffer" {
			continue
		}
		a, errA := Run(t.Context(), first, &p)
		b, errB := Run(t.Context(), second, &p)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if diff := cmp.Diff([]Tally{a.All, a.Counted}, []Tally{b.All, b.Counted}); diff != "" {
			t.Errorf("%s: the outcome differs:\n%s", p.Name, diff)
		}
	}
}

func TestNobodyWaitsWhereThereIsAlwaysRoom(t *testing.T) {
	trace := short(t, 5, 2)
	o, err := Run(t.Context(), trace, &Policies()[0])
	if err != nil {
		t.Fatal(err)
	}
	least := trace.Length * time.Duration((trace.Peak+room-1)/room)
	if len(o.All.Waits) > 0 || o.All.Scaled > 0 || o.All.Ran < least {
		t.Errorf("%d waited; Servers ran for %s instead of %s", len(o.All.Waits), o.All.Ran, least)
	}
}

func TestARunEndsWhenItIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, short(t, 5, 2), &Policies()[0]); err == nil {
		t.Error("it went on")
	}
}

// The goal, on a seed that nothing was tuned to. make sim has longer traces, and more of them.
func TestAForecastHasFewerPlayersWait(t *testing.T) {
	trace, err := Generate(404, 6, Learning)
	if err != nil {
		t.Fatal(err)
	}
	var without, with *Outcome
	for _, p := range Policies() {
		switch p.Name {
		case nameActivePlayers:
			without, err = Run(t.Context(), &trace, &p)
		case nameForecast:
			with, err = Run(t.Context(), &trace, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	waited, before := len(with.Counted.Waits), len(without.Counted.Waits)
	if 100*waited > (100-fewerWait)*before {
		t.Errorf("%d wait with the forecast and %d without it", waited, before)
	}
	if with.Counted.Ran > without.Counted.Ran*(100+moreServers)/100 {
		t.Errorf("Servers ran for %s with the forecast and %s without it", with.Counted.Ran, without.Counted.Ran)
	}
}
