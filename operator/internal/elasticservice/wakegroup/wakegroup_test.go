package wakegroup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

// namespace has ElasticServices by their names.
type namespace map[string]*v1alpha1.ElasticService

// has adds one that sleeps and that is woken with others.
func (n namespace) has(name string, wakeWith ...string) *v1alpha1.ElasticService {
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600))
	es.Name, es.Spec.WakeWith = name, wakeWith
	es.Status.LastSleepTime, es.Status.ReplicasBeforeSleep = fixture.Micro(fixture.At(-600)), 1
	es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef}
	n[name] = es
	return es
}

// awake has one be awake since then.
func (n namespace) awake(name string, since float64) {
	s := &n[name].Status
	s.Phase, s.PhaseSince, s.SleptUntil, s.AsleepTarget = v1alpha1.PhaseAwake, fixture.Micro(fixture.At(since)), fixture.Micro(fixture.At(since)), nil
}

// waking has one wake since then.
func (n namespace) waking(name string, since float64) {
	n.awake(name, since)
	n[name].Status.Phase = v1alpha1.PhaseWaking
}

// see is what a pass of one sees.
func (n namespace) see(t *testing.T, name string) Seen {
	t.Helper()
	var wakers []v1alpha1.ElasticService
	for _, other := range n {
		for _, named := range other.Spec.WakeWith {
			if named == name {
				wakers = append(wakers, *other)
			}
		}
	}
	seen, err := See(n[name], func(name string) (*v1alpha1.ElasticService, error) { return n[name], nil }, wakers)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func (n namespace) decide(t *testing.T, name string, now float64) Verdict {
	t.Helper()
	return Decide(fixture.At(now), n[name], n.see(t, name))
}

func reasonOf(v Verdict) string {
	if v.Flaw == nil {
		return ""
	}
	return v.Flaw.Reason
}

func TestAWakeGoesDownAChainLinkByLink(t *testing.T) {
	n := namespace{}
	n.has("page", "api")
	n.has("api", "database")
	n.has("database")
	step := func(now float64, waits, wakes map[string]bool) {
		t.Helper()
		for name := range n {
			if v := n.decide(t, name, now); len(v.WaitsFor) > 0 != waits[name] || v.Wakes != wakes[name] || v.Flaw != nil {
				t.Errorf("at %v %s waits for %v, is woken: %t, flaw %v", now, name, v.WaitsFor, v.Wakes, v.Flaw)
			}
		}
	}
	both := map[string]bool{"page": true, "api": true}
	step(0, both, nil)
	// A client wakes the page: the stamp is first, and the phase comes later.
	n["page"].Status.LastWakeTime = fixture.Micro(fixture.At(0))
	step(0.1, both, map[string]bool{"api": true})
	// The api's pass has raised its target, and says so before its phase shows it.
	n["api"].Status.KeptAwake = &v1alpha1.KeptAwake{By: "ElasticService page"}
	step(0.2, both, map[string]bool{"api": true, "database": true})
	n.waking("page", 0.3)
	n.waking("api", 0.3)
	n.awake("database", 0.4)
	step(0.5, map[string]bool{"page": true}, map[string]bool{"database": false})
	n.awake("api", 0.6)
	step(0.7, nil, nil)
}

// They fall asleep from the top.
func TestWhoIsNamedIsKeptAwakeUntilWhoNamesItIsAsleep(t *testing.T) {
	n := namespace{}
	n.has("page", "database")
	n.has("admin", "database")
	n.has("database")
	n.awake("database", -60)
	for _, c := range []struct {
		page, admin v1alpha1.Phase
		by          string
	}{
		{v1alpha1.PhaseAwake, v1alpha1.PhaseAsleep, "ElasticService page"},
		{v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep, "ElasticService page"},
		{v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, "ElasticService page"}, // it stays the one that it was
		{v1alpha1.PhaseAsleep, v1alpha1.PhaseAwake, "ElasticService admin"},
		{v1alpha1.PhaseAwake, v1alpha1.PhaseAwake, "ElasticService admin"},
		{"", v1alpha1.PhaseAsleep, ""},
	} {
		n["page"].Status.Phase, n["admin"].Status.Phase = c.page, c.admin
		v := n.decide(t, "database", 0)
		if v.By != c.by {
			t.Errorf("page %s and admin %s: it is kept awake by %q, want %q", c.page, c.admin, v.By, c.by)
		}
		n["database"].Status.KeptAwake = &v1alpha1.KeptAwake{By: v.By}
	}
	n.awake("page", 0)
	fixture.Deleted(n["page"], fixture.At(0))
	if v := n.decide(t, "database", 0); v.By != "" {
		t.Errorf("it is kept awake by %s, which is being deleted", v.By)
	}
}

func TestADiamondIsNoCycle(t *testing.T) {
	n := namespace{}
	n.has("page", "api", "images")
	n.has("api", "database")
	n.has("images", "database")
	n.has("database")
	n.waking("page", 0)
	n.waking("images", 0)
	for name, want := range map[string][]string{"page": {"api", "images"}, "api": {"database"}, "database": nil} {
		v := n.decide(t, name, 1)
		if diff := cmp.Diff(want, v.WaitsFor); diff != "" || v.Flaw != nil {
			t.Errorf("%s waits for (-want +got): %s%v", name, diff, v.Flaw)
		}
	}
	if v := n.decide(t, "database", 1); v.By != "ElasticService images" || !v.Wakes {
		t.Errorf("the database is kept awake by %q, and woken: %t", v.By, v.Wakes)
	}
}

// Neither side of a name on the cycle counts, and those beside the cycle do.
func TestNamesOnACycleCountForNothing(t *testing.T) {
	for length := 1; length <= 5; length++ {
		n := namespace{}
		n.has("outside", "s0")
		for i := range length {
			n.has(fmt.Sprintf("s%d", i), fmt.Sprintf("s%d", (i+1)%length), "database")
		}
		n.has("database")
		for name := range n {
			n.waking(name, 0)
		}
		for i := range length {
			v := n.decide(t, fmt.Sprintf("s%d", i), 1)
			if diff := cmp.Diff([]string{"database"}, v.WaitsFor); diff != "" || reasonOf(v) != reasons.WakeGroupCycle {
				t.Errorf("s%d of %d waits for (-want +got): %s%v", i, length, diff, v.Flaw)
			}
			if by := map[bool]string{true: "ElasticService outside"}[i == 0]; v.By != by {
				t.Errorf("s%d of %d is kept awake by %q, want %q", i, length, v.By, by)
			}
		}
		if v := n.decide(t, "outside", 1); len(v.WaitsFor) != 1 || v.Flaw != nil {
			t.Errorf("from outside of %d it waits for %v, %v", length, v.WaitsFor, v.Flaw)
		}
		if v := n.decide(t, "database", 1); v.By != "ElasticService s0" {
			t.Errorf("the database of %d is kept awake by %q", length, v.By)
		}
		if length == 3 {
			if v := n.decide(t, "s1", 1); !strings.Contains(v.Flaw.Message, "names s2, which counts for nothing, because it wakes this one in turn (s1, s2, s0, s1)") {
				t.Errorf("it says: %s", v.Flaw.Message)
			}
		}
	}
}

func TestANameThatIsNotThereCountsForNothing(t *testing.T) {
	n := namespace{}
	n.has("page", "cache", "old", "database")
	// By one that goes no cycle leads back.
	fixture.Deleted(n.has("old", "page"), fixture.At(0))
	n.has("database")
	v := n.decide(t, "page", 0)
	if diff := cmp.Diff([]string{"database"}, v.WaitsFor); diff != "" {
		t.Errorf("it waits for (-want +got): %s", diff)
	}
	if reasonOf(v) != reasons.ElasticServiceNotFound || !strings.Contains(v.Flaw.Message, "names cache, old, which counts for nothing") {
		t.Errorf("it says: %v", v.Flaw)
	}
}

func TestAGroupIsBounded(t *testing.T) {
	n := namespace{}
	n.has("page", "s1")
	for i := 1; i <= MaxReached; i++ {
		var next []string
		if i < MaxReached {
			next = []string{fmt.Sprintf("s%d", i+1)}
		}
		n.has(fmt.Sprintf("s%d", i), next...)
	}
	n.awake("page", 0)
	if v := n.decide(t, "page", 0); v.Flaw != nil || len(v.WaitsFor) != 1 {
		t.Errorf("of %d it waits for %v: %v", MaxReached, v.WaitsFor, v.Flaw)
	}
	n.has("portal", "page")
	if v := n.decide(t, "portal", 0); reasonOf(v) != reasons.WakeGroupTooLarge || len(v.WaitsFor) > 0 {
		t.Errorf("of one more it waits for %v: %v", v.WaitsFor, v.Flaw)
	}
	if v := n.decide(t, "s1", 0); v.By != "ElasticService page" {
		t.Errorf("the first is kept awake by %q", v.By)
	}
}

func TestWhoScalesToZeroIsObeyedUntilTheNextWake(t *testing.T) {
	n := namespace{}
	n.has("page", "database")
	n.has("database")
	n.awake("page", -60)
	s := &n["database"].Status
	s.AsleepTarget, s.LastSleepTime = nil, fixture.Micro(fixture.At(-30))
	if v := n.decide(t, "database", 0); v.Wakes || v.By != "ElasticService page" {
		t.Errorf("scaled to zero while the page is awake, it is woken: %t, kept awake by %q", v.Wakes, v.By)
	}
	// The page is up, and waits for nobody.
	n.waking("page", -20)
	if v := n.decide(t, "database", 0); !v.Wakes {
		t.Error("the page has woken since, and it isn't woken")
	}
	s.Phase = v1alpha1.PhaseAwake
	if v := n.decide(t, "database", 0); v.Wakes {
		t.Error("scaled to zero just now, it is woken")
	}
}

// A wake that failed leaves a stamp, and no phase follows.
func TestAStampAloneWakesForAShortTime(t *testing.T) {
	n := namespace{}
	n.has("page", "database")
	n.has("database")
	n["page"].Status.LastWakeTime = fixture.Micro(fixture.At(0))
	if v := n.decide(t, "database", 9.9); !v.Wakes || !v.Next.Equal(fixture.At(10)) {
		t.Errorf("after 9.9s it is woken: %t, and looked at again at %s", v.Wakes, v.Next)
	}
	if v := n.decide(t, "database", 10); v.By != "" {
		t.Errorf("after 10s it is kept awake by %q", v.By)
	}
	// One from before the sleep is none.
	n["page"].Status.LastWakeTime = fixture.Micro(fixture.At(-601))
	if v := n.decide(t, "database", -600); v.By != "" {
		t.Errorf("by an earlier stamp it is kept awake by %q", v.By)
	}
}

func TestTheWaitIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		timeout *metav1.Duration
		bound   float64
	}{
		"half of what clients are held":       {&metav1.Duration{Duration: time.Minute}, 30},
		"half of the default":                 {nil, 150},
		"of clients who are held for ever":    {&metav1.Duration{}, 150},
		"of those who are held for a moment ": {&metav1.Duration{Duration: time.Second}, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			n := namespace{}
			n.has("page", "database", "cache").Spec.Hold.Timeout = c.timeout
			n.has("database")
			n.has("cache")
			n.awake("cache", -600)
			if v := n.decide(t, "page", 86400); len(v.WaitsFor) != 1 || v.Flaw != nil || !v.Next.IsZero() {
				t.Errorf("asleep it waits for %v until %s: %v", v.WaitsFor, v.Next, v.Flaw)
			}
			n.waking("page", 0)
			n.waking("database", 0)
			if v := n.decide(t, "page", c.bound-0.1); len(v.WaitsFor) != 1 || !v.Next.Equal(fixture.At(c.bound)) || v.Flaw != nil {
				t.Errorf("before that it waits for %v until %s: %v", v.WaitsFor, v.Next, v.Flaw)
			}
			v := n.decide(t, "page", c.bound)
			if len(v.WaitsFor) > 0 || reasonOf(v) != reasons.OthersNotUp || !strings.Contains(v.Flaw.Message, "(database)") {
				t.Errorf("after that it waits for %v: %v", v.WaitsFor, v.Flaw)
			}
			n["page"].Status.Phase = v1alpha1.PhaseAwake
			n["page"].Status.PhaseSince = fixture.Micro(fixture.At(c.bound))
			if v := n.decide(t, "page", c.bound); reasonOf(v) != reasons.OthersNotUp {
				t.Errorf("awake without it, it says %v", v.Flaw)
			}
			n.awake("database", c.bound+1)
			if v := n.decide(t, "page", c.bound+1); v.Flaw != nil {
				t.Errorf("once it has come up, it says %v", v.Flaw)
			}
			// One that was up is given as long again.
			n.waking("database", c.bound+2)
			if v := n.decide(t, "page", c.bound+2); v.Flaw != nil || !v.Next.Equal(fixture.At(2*c.bound+2)) {
				t.Errorf("just down again, it says %v until %s", v.Flaw, v.Next)
			}
		})
	}
}

func TestNobodyWaitsForWhoIsKeptAsleep(t *testing.T) {
	n := namespace{}
	n.has("page", "database")
	n.has("database").Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: "2026-11-01T12:00:30Z"}
	if v := n.decide(t, "page", 0); len(v.WaitsFor) > 0 || v.Flaw != nil || !v.Next.Equal(fixture.At(30)) {
		t.Errorf("asleep it waits for %v until %s: %v", v.WaitsFor, v.Next, v.Flaw)
	}
	n.waking("page", 0)
	if v := n.decide(t, "page", 1); len(v.WaitsFor) > 0 || reasonOf(v) != reasons.KeptAsleep || !strings.Contains(v.Flaw.Message, "(database)") {
		t.Errorf("waking it waits for %v: %v", v.WaitsFor, v.Flaw)
	}
	if v := n.decide(t, "page", 30); len(v.WaitsFor) != 1 || v.Flaw != nil {
		t.Errorf("once its time is over it waits for %v: %v", v.WaitsFor, v.Flaw)
	}
	// Somebody scaled it up.
	n.waking("database", 0)
	if v := n.decide(t, "page", 1); len(v.WaitsFor) != 1 || v.Flaw != nil {
		t.Errorf("while it wakes it waits for %v: %v", v.WaitsFor, v.Flaw)
	}
}

// Nobody is kept awake for one that can't be used, whatever its phase was.
func TestOneWithoutATargetKeepsNobodyAwake(t *testing.T) {
	for name, c := range map[string]metav1.Condition{
		"its target is gone":  {Type: conditions.TargetFound, Status: metav1.ConditionFalse, Reason: reasons.TargetNotFound},
		"it names too many":   {Type: conditions.WakeGroupValid, Status: metav1.ConditionFalse, Reason: reasons.WakeGroupTooLarge},
		"nobody can tell":     {Type: conditions.TargetFound, Status: metav1.ConditionUnknown, Reason: reasons.NotObserved},
		"it waits for others": {Type: conditions.WakeGroupValid, Status: metav1.ConditionFalse, Reason: reasons.OthersNotUp},
	} {
		n := namespace{}
		n.has("page", "database")
		n.has("database")
		n.awake("page", -60)
		n.awake("database", -60)
		n["page"].Status.Conditions = []metav1.Condition{c}
		kept := Decide(fixture.At(0), n["database"], n.see(t, "database")).By != ""
		if want := name == "nobody can tell" || name == "it waits for others"; kept != want {
			t.Errorf("%s: it keeps the database awake: %t, want %t", name, kept, want)
		}
	}
}

// One that is to be kept awake, and can't be scaled, stays Asleep for as long.
func TestWhoScalesToZeroIsObeyedThoughAWakeOfAnotherFails(t *testing.T) {
	n := namespace{}
	n.has("page", "database")
	n.has("database")
	n["page"].Status.KeptAwake = &v1alpha1.KeptAwake{By: "awake[0]"}
	if v := Decide(fixture.At(0), n["database"], n.see(t, "database")); !v.Wakes {
		t.Error("a database that Dormouse put to sleep isn't woken with the page")
	}
	s := &n["database"].Status
	s.AsleepTarget, s.LastSleepTime = nil, fixture.Micro(fixture.At(-30))
	if v := Decide(fixture.At(0), n["database"], n.see(t, "database")); v.Wakes {
		t.Error("a database that somebody scaled to zero is woken by a page that sleeps still")
	}
	n.waking("page", -1)
	if v := Decide(fixture.At(0), n["database"], n.see(t, "database")); !v.Wakes {
		t.Error("the database isn't woken though the page wakes indeed")
	}
}
