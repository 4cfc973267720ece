package book_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestAWholeServerGoesToOne(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a")
	w.ask("b")
	w.want("a", "on one")
	w.want("b", "Refused: NoServerFree")
	w.delete("a")
	w.ask("c")
	w.want("c", "on one")
}

func TestADecisionCountsBeforeItIsWritten(t *testing.T) {
	w := newWorld(t)
	s := w.server("one")
	w.ask("a")
	if h := w.HolderOf(s.Namespace, s.Name, s.UID); h.Name != "a" {
		t.Errorf("the Server has the holder %+v", h)
	}
	w.ask("b")
	w.want("b", "Refused: NoServerFree")
}

func TestServersThatAreNotGiven(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Server){
		"one that drains":                     func(s *v1alpha1.Server) { s.Spec.Drain = true },
		"one that is being deleted":           func(s *v1alpha1.Server) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
		"one that was told to stop":           func(s *v1alpha1.Server) { s.Spec.Running = new(false) },
		"one that starts":                     func(s *v1alpha1.Server) { s.Status.State = v1alpha1.ServerStarting },
		"one that isn't ready":                func(s *v1alpha1.Server) { s.Status.Conditions[0].Status = metav1.ConditionFalse },
		"one that hasn't reported":            func(s *v1alpha1.Server) { s.Status.Game = nil },
		"one whose game asks for its own end": func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameShutdown },
		"one whose game is Allocated":         func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameAllocated },
		"one whose game is Reserved":          func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameReserved },
		"one where somebody plays":            func(s *v1alpha1.Server) { s.Status.Players.Current = 1 },
		"one of another GameType":             func(s *v1alpha1.Server) { s.Labels["dormouse.dev/gametype"] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server("one", change)
			w.ask("a")
			w.want("a", "Refused: NoServerFree")
		})
	}
}

func TestAServerMaySayAllocatedStill(t *testing.T) {
	w := newWorld(t)
	w.server("one", func(s *v1alpha1.Server) { s.Status.State = v1alpha1.ServerAllocated })
	w.ask("a")
	w.want("a", "on one")
}

func TestPlacesAreShared(t *testing.T) {
	w := newWorld(t)
	w.server("one", func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameAllocated })
	w.ask("a", places(4))
	w.ask("b", places(6))
	w.ask("c", places(1))
	w.want("a", "on one")
	w.want("b", "on one")
	w.want("c", "Refused: NoServerFree")
	// Those who were expected have come, and count once.
	w.server("one", func(s *v1alpha1.Server) { s.Status.Players.Current = 10 })
	w.delete("b")
	w.ask("d", places(1))
	w.want("d", "Refused: NoServerFree")
	w.server("one", func(s *v1alpha1.Server) { s.Status.Players.Current = 4 })
	w.ask("e", places(6))
	w.want("e", "on one")
}

func TestPlacesNeedACapacity(t *testing.T) {
	w := newWorld(t)
	w.server("one", func(s *v1alpha1.Server) { s.Status.Players = nil })
	w.ask("a", places(1))
	w.want("a", "Refused: NoServerFree")
	w.ask("b")
	w.want("b", "on one")
}

func TestAWholeServerIsNotShared(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a", places(1))
	w.ask("b")
	w.want("b", "Refused: NoServerFree")
	w.delete("a")
	w.ask("c")
	w.ask("d", places(1))
	w.want("c", "on one")
	w.want("d", "Refused: NoServerFree")
}

func TestThoseThatWaitAreServedInTurn(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.ask(fmt.Sprint("a", i), waits(time.Minute))
	}
	w.delete("a1")
	w.server("one")
	w.server("two")
	w.want("a0", "on one")
	w.want("a2", "on two")
	w.want("a3", "waits")
	w.delete("a0")
	w.want("a3", "on one")
	w.passes(59 * time.Second)
	w.want("a4", "Pending: Pending")
	w.passes(time.Second)
	w.want("a4", "Refused: WaitOver")
	if n := w.Pending(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

func TestNoMoreWaitThanMay(t *testing.T) {
	w := newWorld(t)
	for i := range 1001 {
		w.ask(fmt.Sprint("a", i), waits(time.Minute))
	}
	w.want("a999", "waits")
	w.want("a1000", "Refused: TooManyWait")
}

func TestATTLEnds(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a", ttl(time.Minute))
	w.want("a", "on one")
	w.ask("b", waits(time.Hour))
	w.passes(59 * time.Second)
	w.want("a", "on one")
	w.passes(2 * time.Second)
	if w.stored["b"].Status.State == v1alpha1.AllocationAllocated {
		t.Error("the Server is given again before its Allocation says that it is over")
	}
	w.want("a", "Expired: TimeOver")
	w.want("b", "on one")
	w.passes(time.Hour)
	w.want("a", "gone")
}

func TestATTLMayBeMadeLonger(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a", ttl(time.Minute))
	w.want("a", "on one")
	longer := w.stored["a"].DeepCopy()
	longer.Spec.TTL.Duration, longer.ResourceVersion = time.Hour, w.next()
	w.stored["a"] = longer
	w.SetAllocation(longer, false)
	w.passes(2 * time.Minute)
	w.want("a", "on one")
	w.passes(time.Hour)
	w.want("a", "Expired: TimeOver")
}

// Who waits until an edit was observed, as GitOps tools do, sees that.
func TestAnEditIsObserved(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a", ttl(time.Minute))
	w.want("a", "on one")
	edit := func(generation int64, ttl time.Duration) {
		edited := w.stored["a"].DeepCopy()
		edited.Generation, edited.Spec.TTL.Duration, edited.ResourceVersion = generation, ttl, w.next()
		w.stored["a"] = edited
		w.SetAllocation(edited, false)
	}
	observed := func(generation int64, state string) {
		t.Helper()
		w.want("a", state)
		if got := w.stored["a"].Status.ObservedGeneration; got != generation {
			t.Errorf("generation %d is observed, want %d", got, generation)
		}
		if len(w.decided) > 0 {
			t.Errorf("more is to be written: %v", w.decided)
		}
	}
	edit(2, time.Hour)
	observed(2, "on one")
	edit(3, time.Second)
	w.passes(2 * time.Second) // before that the edit may not be written
	observed(3, "Expired: TimeOver")
	edit(4, time.Hour)
	observed(4, "Expired: TimeOver")
	// An edit that came while nobody led.
	edited := w.stored["a"].DeepCopy()
	edited.Generation, edited.ResourceVersion = 5, w.next()
	w.stored["a"] = edited
	w.restart()
	observed(5, "Expired: TimeOver")
}

func TestAServerThatGoesEndsItsAllocations(t *testing.T) {
	for name, goes := range map[string]func(*world){
		"deleted":      func(w *world) { w.deleteServer("one") },
		"made again":   func(w *world) { w.server("one", func(s *v1alpha1.Server) { s.UID = "another" }) },
		"its Pod lost": func(w *world) { w.server("one", func(s *v1alpha1.Server) { s.Status.Game = nil }) },
		"another Pod":  func(w *world) { w.server("one", func(s *v1alpha1.Server) { s.Status.Game.PodUID = "another" }) },
		"deleted while nobody led": func(w *world) {
			delete(w.servers, "one")
			w.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server("one")
			w.ask("a", places(1))
			w.ask("b", places(1))
			w.want("a", "on one")
			w.want("b", "on one")
			goes(w)
			w.want("a", "Expired: ServerGone")
			w.want("b", "Expired: ServerGone")
		})
	}
}

func TestAServerThatGoesBeforeTheWriteIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a", waits(time.Minute))
	w.deleteServer("one")
	w.server("two")
	w.want("a", "on two")
}

func TestANewLeaderKnowsWhatWasGiven(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.server("two")
	w.ask("a")
	w.writeAll()
	had := w.stored["a"].Status.ServerName
	w.ask("b") // decided, and never written
	w.restart()
	w.ask("c")
	w.writeAll()
	if now := w.stored["a"].Status.ServerName; now != had {
		t.Errorf("a was on %s and is on %s", had, now)
	}
	for _, name := range []string{"b", "c"} {
		if s := w.stored[name].Status; s.State == v1alpha1.AllocationAllocated && s.ServerName == had {
			t.Errorf("%s has the Server of a", name)
		}
	}
}

func TestOfTwoLeadersTheFirstWriteCounts(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a", waits(time.Minute))
	w.want("a", "on one")
	// What another leader has written comes late.
	w.now = w.now.Add(time.Second)
	other := w.stored["a"].DeepCopy()
	other.Name, other.UID, other.ResourceVersion = "b", "b", w.next()
	other.Status.AllocatedAt.Time = w.now
	w.stored["b"] = other
	w.SetAllocation(other, false)
	w.want("a", "on one")
	w.want("b", "Expired: GivenTwice")
}

func TestAWithdrawnServerIsNotGiven(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	if !w.Withdraw(namespace, "one") {
		t.Fatal("a free Server can't be withdrawn")
	}
	w.ask("a", waits(time.Minute))
	w.want("a", "waits")
	w.passes(10 * time.Second) // the drain was refused, it seems
	w.want("a", "on one")
	if w.Withdraw(namespace, "one") {
		t.Error("a Server is withdrawn from its Allocation")
	}
}

// service is an ElasticService of GameType duel.
func (w *world) service(phase v1alpha1.Phase) *v1alpha1.ElasticService {
	es := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "duel", ResourceVersion: w.next()},
		Spec:       v1alpha1.ElasticServiceSpec{Service: "duel", ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: "duel"}},
		Status:     v1alpha1.ElasticServiceStatus{Phase: phase},
	}
	w.SetService(es)
	return es
}

func TestASleepingTargetIsWokenAndGivesNothing(t *testing.T) {
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			w.service(phase)
			w.server("one")
			w.ask("a")
			w.want("a", "Refused: NoServerFree")
			if n := len(w.Wakes()); n != 1 {
				t.Errorf("%d are woken for one that doesn't wait", n)
			}
			if n := len(w.Wakes()); n != 0 {
				t.Errorf("%d are woken again", n)
			}
			w.ask("b", waits(time.Minute))
			for range 2 {
				if n := len(w.Wakes()); n != 1 {
					t.Errorf("%d are woken for one that waits", n)
				}
			}
			w.want("b", "waits")
			w.service(v1alpha1.PhaseAwake)
			w.want("b", "on one")
			if n := len(w.Wakes()); n != 0 {
				t.Errorf("%d are woken that are awake", n)
			}
		})
	}
}

// Nothing else need change when the last one goes: the Servers' status says the same as before.
func TestAServiceHearsThatItsTargetIsUsedNoMore(t *testing.T) {
	w := newWorld(t)
	es := w.service(v1alpha1.PhaseAwake)
	heard := func(when string, want int) {
		t.Helper()
		if got := w.unused[es.Name]; got != want {
			t.Errorf("%s: it has heard of it %d times, want %d", when, got, want)
		}
		w.unused[es.Name] = 0
	}
	heard("when it comes, since the last one may have gone before that", 1)
	w.ask("a", waits(time.Minute), places(1))
	w.ask("b", waits(time.Minute), places(1))
	w.want("a", "waits")
	w.server("one")
	w.want("a", "on one")
	w.want("b", "on one")
	w.delete("b")
	heard("while it is used", 0)
	w.delete("a")
	heard("once the last one is gone", 1)

	w.ask("c", waits(time.Minute), places(100))
	w.want("c", "waits")
	w.delete("c")
	heard("once the last one has given up", 1)

	w.ask("d")
	w.want("d", "on one")
	w.server("one")
	heard("when a Server that is held changes", 0)
	w.deleteServer("one")
	heard("once the last one has lost its Server", 1)
}

func TestATargetInUseIsNotClosed(t *testing.T) {
	w := newWorld(t)
	es := w.service(v1alpha1.PhaseFallingAsleep)
	closes := func() bool { return w.Close(namespace, "GameType", "duel", es.ResourceVersion) }
	w.ask("a", waits(time.Minute))
	if closes() || w.UseOf(namespace, "GameType", "duel").By == "" {
		t.Error("it is put to sleep while one waits")
	}
	w.service(v1alpha1.PhaseAwake)
	w.server("one")
	w.want("a", "on one")
	if closes() || w.UseOf(namespace, "GameType", "duel").By == "" {
		t.Error("it is put to sleep with an Allocation")
	}
	w.passes(time.Minute)
	w.delete("a")
	if u := w.UseOf(namespace, "GameType", "duel"); u.By != "" || !u.Last.Equal(w.now) {
		t.Errorf("its use is %+v", u)
	}
	es = w.service(v1alpha1.PhaseAwake)
	if !closes() {
		t.Error("it isn't put to sleep though nobody uses it")
	}
	w.ask("b", waits(time.Minute))
	w.want("b", "waits")
	w.SetService(es) // the cache doesn't show the sleep yet
	w.want("b", "waits")
	w.service(v1alpha1.PhaseAwake)
	w.want("b", "on one")
}

func TestPreferences(t *testing.T) {
	near := func(key, value string) func(*v1alpha1.AllocationSpec) {
		return func(s *v1alpha1.AllocationSpec) {
			s.Preference.Near = &v1alpha1.AllocationNear{Key: key, Value: value}
		}
	}
	at := func(node string) func(*v1alpha1.Server) {
		return func(s *v1alpha1.Server) { s.Status.NodeName = node }
	}
	for name, c := range map[string]struct {
		ask  []func(*v1alpha1.AllocationSpec)
		want string
	}{
		"packed, the node with the most":       {want: "on a2"},
		"distributed, the node with the least": {ask: []func(*v1alpha1.AllocationSpec){distributed}, want: "on b1"},
		"packed places, the fullest":           {ask: []func(*v1alpha1.AllocationSpec){places(2)}, want: "on full"},
		"packed places, the fullest that fits": {ask: []func(*v1alpha1.AllocationSpec){places(4)}, want: "on fuller"},
		"places near":                          {ask: []func(*v1alpha1.AllocationSpec){places(2), near("region", "b")}, want: "on b1"},
		"near":                                 {ask: []func(*v1alpha1.AllocationSpec){near("region", "b")}, want: "on b1"},
		"near nothing":                         {ask: []func(*v1alpha1.AllocationSpec){near("region", "c")}, want: "on a2"},
		"near a label that no node has":        {ask: []func(*v1alpha1.AllocationSpec){near("zone", "")}, want: "on a2"},
		"by a label": {ask: []func(*v1alpha1.AllocationSpec){func(s *v1alpha1.AllocationSpec) {
			s.TargetRef, s.Selector = nil, &v1alpha1.AllocationSelector{MatchLabels: map[string]v1alpha1.LabelValue{"map": "desert"}}
		}}, want: "on b1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.SetNode("a", map[string]string{"region": "a"})
			w.SetNode("b", map[string]string{"region": "b"})
			for _, full := range []string{"full", "fuller"} {
				w.server(full, at("a"), func(s *v1alpha1.Server) {
					s.Status.Players.Current = map[string]int32{"full": 7, "fuller": 5}[full]
					s.Labels["map"] = "full"
				})
			}
			w.server("a1", at("a"))
			w.ask("before")
			w.want("before", "on a1")
			w.server("a2", at("a"))
			w.server("b1", at("b"), func(s *v1alpha1.Server) { s.Labels["map"] = "desert" })
			w.ask("a", c.ask...)
			w.want("a", c.want)
		})
	}
}

func TestManyQuestions(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		label := fmt.Sprint("m", i)
		w.server(label, func(s *v1alpha1.Server) { s.Labels["map"] = label })
	}
	for i := range 200 {
		label := fmt.Sprint("m", i)
		w.ask(label, func(s *v1alpha1.AllocationSpec) {
			s.Selector = &v1alpha1.AllocationSelector{MatchLabels: map[string]v1alpha1.LabelValue{"map": v1alpha1.LabelValue(label)}}
		})
		w.want(label, "on "+label)
	}
}

func BenchmarkAllocate(b *testing.B) {
	for _, servers := range []int{500, 10000} {
		b.Run(fmt.Sprint(servers, " Servers"), func(b *testing.B) {
			w := newWorld(b)
			for i := range servers {
				w.server(fmt.Sprint("s", i), func(s *v1alpha1.Server) { s.Status.NodeName = fmt.Sprint("node-", i%100) })
			}
			w.ask("first")
			w.writeAll()
			b.ResetTimer()
			for range b.N {
				w.ask("a")
				w.write("a")
				w.delete("a")
			}
		})
	}
}

func TestALateCacheTakesNothingBack(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	w.ask("a")
	asked := w.stored["a"]
	w.want("a", "on one")
	w.ask("b")
	refused := w.stored["b"]
	w.want("b", "Refused: NoServerFree")
	w.delete("a")
	w.stored["a"] = asked
	w.SetAllocation(refused, false)
	w.ask("c")
	w.want("b", "Refused: NoServerFree")
	w.want("c", "on one")
}

// An ElasticService may have a single Server.
func TestAServerMaySleepByItself(t *testing.T) {
	w := newWorld(t)
	service := func(phase v1alpha1.Phase) {
		w.SetService(&v1alpha1.ElasticService{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one", ResourceVersion: w.next()},
			Spec:       v1alpha1.ElasticServiceSpec{Service: "one", ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Server", Name: "one"}},
			Status:     v1alpha1.ElasticServiceStatus{Phase: phase},
		})
	}
	w.server("one")
	service(v1alpha1.PhaseAsleep)
	if n := w.Free(namespace, "Server", "one"); n != 0 {
		t.Errorf("%d can be given that sleep", n)
	}
	w.ask("a", waits(time.Minute))
	w.want("a", "waits")
	service(v1alpha1.PhaseAwake)
	w.want("a", "on one")
	w.restart()
	service(v1alpha1.PhaseAwake)
	for _, kind := range []string{"Server", "GameType"} {
		name := map[string]string{"Server": "one", "GameType": "duel"}[kind]
		if u := w.UseOf(namespace, kind, name); u.By == "" {
			t.Errorf("%s %s seems to be unused", kind, name)
		}
	}
	if w.Close(namespace, "Server", "one", w.next()) {
		t.Error("it may sleep while an Allocation has it")
	}
	w.delete("a")
	if n := w.Free(namespace, "Server", "one"); n != 1 {
		t.Errorf("%d can be given, want 1", n)
	}
	if !w.Close(namespace, "Server", "one", w.next()) {
		t.Error("it may not sleep though nobody has it")
	}
	w.ask("b")
	w.want("b", "Refused: NoServerFree")
}
