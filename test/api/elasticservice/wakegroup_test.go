package elasticservice_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// wakesWith has a service that sleeps wake others with it.
func (w *world) wakesWith(name string, others ...string) {
	w.t.Helper()
	es := w.want(name, promptly)
	w.edit(es, func() { es.Spec.WakeWith = others })
}

func waitsFor(names ...string) check {
	return func(es *v1alpha1.ElasticService) error {
		if !slices.Equal(es.Status.WaitsFor, names) {
			return fmt.Errorf("it waits for %v, want %v", es.Status.WaitsFor, names)
		}
		return nil
	}
}

func TestServicesAreWokenTogetherAndSleepOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"lobby", "proxy", "portal"} {
		w.dozing(name)
	}
	w.wakesWith("proxy", "lobby")
	w.wakesWith("portal", "proxy")
	es := w.want("portal", promptly, ready, waitsFor("proxy"), hasCondition(conditions.WakeGroupValid, metav1.ConditionTrue, reasons.OK))
	w.edit(es, func() { es.Spec.SleepAfter = &metav1.Duration{Duration: 10 * time.Second} })
	w.want("proxy", promptly, ready, waitsFor("lobby"))

	// A client wakes the portal, and the portal the others.
	since := w.latest()
	w.wake(0, resolverToken(t), "portal")
	first := w.must("the portal's target at 1", promptly, since, toReplicas("portal", 1))
	last := w.must("the lobby's target at 1", promptly, since, toReplicas("lobby", 1))
	t.Logf("the lobby was woken %s after the portal, and before any of them had a server", last.at.Sub(first.at))
	w.wantEvent("Waking", "kept awake by ElasticService proxy until that is asleep. Scaled Deployment lobby from 0 to 1 replicas.")
	// The portal's own server is up, and that isn't enough.
	w.servers("portal", newServer())
	w.servers("proxy", newServer())
	w.want("portal", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.stays("portal", 3*time.Second, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy), waitsFor("proxy"),
		hasCondition(conditions.WakeGroupValid, metav1.ConditionTrue, reasons.WaitsForOthers))
	w.servers("lobby", newServer())
	for _, name := range []string{"portal", "proxy", "lobby"} {
		w.want(name, promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), waitsFor(), ready)
	}
	w.want("lobby", promptly, isKeptAwakeBy("ElasticService proxy"), hasCondition(conditions.WakeGroupValid, metav1.ConditionTrue, reasons.KeptAwake))

	// None sleeps before the one that names it.
	since = w.latest()
	before := since
	for _, name := range []string{"portal", "proxy", "lobby"} {
		sleep := w.must(name+" asleep", afterSettling, since, toPhase(name, v1alpha1.PhaseAsleep))
		if sleep.revision < before {
			t.Errorf("%s fell asleep before the one that names it", name)
		}
		before = sleep.revision
	}
	w.want("portal", promptly, ready, waitsFor("proxy"))
	w.want("proxy", promptly, ready, waitsFor("lobby"))
}

func TestWhoScalesToZeroInAWakeGroupIsObeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dozing("lobby")
	w.dozing("proxy")
	w.wakesWith("proxy", "lobby")
	es := w.want("proxy", promptly, waitsFor("lobby"))
	w.edit(es, func() { es.Spec.SleepAfter = &metav1.Duration{} })
	since := w.latest()
	w.wake(0, resolverToken(t), "proxy")
	w.must("the lobby's target at 1", promptly, since, toReplicas("lobby", 1))
	w.servers("proxy", newServer())
	w.servers("lobby", newServer())
	w.want("proxy", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.scaleLobby(0)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), ready,
		hasCondition(conditions.WakeGroupValid, metav1.ConditionTrue, reasons.ScaledToZero))
	since = w.latest()
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if n := w.count(since, writesTo("lobby")); n > 0 {
		t.Errorf("the lobby's target was written %d times", n)
	}
	w.delete("lobby")
	w.want("proxy", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), hasCondition(conditions.WakeGroupValid, metav1.ConditionFalse, reasons.ElasticServiceNotFound))
}

func TestACycleOfServicesIsSaidAndCountsForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"one", "two", "three"} {
		w.dozing(name)
	}
	w.wakesWith("one", "two")
	w.wakesWith("two", "three")
	w.want("one", promptly, ready, waitsFor("two"))
	w.wakesWith("three", "one")
	for _, name := range []string{"one", "two", "three"} {
		w.want(name, promptly, waitsFor(), hasCondition(conditions.WakeGroupValid, metav1.ConditionFalse, reasons.WakeGroupCycle),
			hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.WakeGroupCycle))
	}
	w.want("one", promptly, message(conditions.WakeGroupValid, "names two, which counts for nothing, because it wakes this one in turn (one, two, three, one)"))
	w.wakesWith("three", "nobody")
	for name, other := range map[string]string{"one": "two", "two": "three"} {
		w.want(name, promptly, ready, waitsFor(other))
	}
	w.want("three", promptly, waitsFor(), hasCondition(conditions.WakeGroupValid, metav1.ConditionFalse, reasons.ElasticServiceNotFound))
	w.dozing("nobody")
	w.want("three", promptly, ready, waitsFor("nobody"))
}
