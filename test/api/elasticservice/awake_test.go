package elasticservice_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/informerapi"
)

// dozing is a service with handoff Never that is idle and asleep, by Dormouse. Its only server is
// one that its target may get again.
func (w *world) dozing(name string, change ...func(*v1alpha1.ElasticService)) {
	w.t.Helper()
	w.deployment(name, 1)
	w.service(name, selectorless)
	w.elastic(name, append(change, handoffNever, sleepAfter(time.Second))...)
	w.servers(name, newServer())
	w.want(name, afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.must("the target at 0", promptly, 0, toReplicas(name, 0)) // the phase is written before that
	w.servers(name)
}

// openUntil is a window that opened at a whole minute of the past, and is open until then.
func openUntil(closes time.Time) v1alpha1.TimeWindow {
	opened := time.Now().UTC().Truncate(time.Minute).Add(-time.Minute)
	return v1alpha1.TimeWindow{
		Cron:     fmt.Sprintf("%d %d %d %d *", opened.Minute(), opened.Hour(), opened.Day(), opened.Month()),
		Duration: metav1.Duration{Duration: closes.Sub(opened).Truncate(time.Second)},
	}
}

func isKeptAwakeBy(by string) check {
	return func(es *v1alpha1.ElasticService) error {
		if kept := es.Status.KeptAwake; kept == nil || kept.By != by {
			return fmt.Errorf("it is kept awake by %+v, want %s", kept, by)
		}
		return nil
	}
}

func TestAServiceIsAwakeInItsWindowAndSleepsAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dozing("lobby")
	since := w.latest()
	closes := time.Now().Add(12 * time.Second)
	es := w.want("lobby", promptly, ready, hasCondition(conditions.AwakeWindowsValid, metav1.ConditionTrue, reasons.NotNeeded))
	w.edit(es, func() { es.Spec.Awake = []v1alpha1.TimeWindow{openUntil(closes)} })
	w.must("the target at 1", promptly, since, toReplicas("lobby", 1))
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), ready, isKeptAwakeBy("awake[0]"),
		hasCondition(conditions.AwakeWindowsValid, metav1.ConditionTrue, reasons.KeptAwake))
	es = w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy),
		hasCondition(conditions.AwakeWindowsValid, metav1.ConditionTrue, reasons.WindowClosed))
	if slept := es.Status.LastSleepTime.Time; slept.Before(closes.Truncate(time.Second)) || es.Status.KeptAwake != nil {
		t.Errorf("it slept at %s, in the window until %s, and is kept awake by %+v", slept, closes, es.Status.KeptAwake)
	}
	w.must("the target at 0", promptly, since, toReplicas("lobby", 0))
	if es.Status.LastWakeTime != nil {
		t.Errorf("a client woke it at %s, want none", es.Status.LastWakeTime)
	}
}

// The window opens within three minutes: as long as that, less some seconds, took the last wake. It
// is woken up to 30s earlier than by that.
func TestAServiceIsWokenAheadOfItsWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dozing("lobby")
	since := w.latest()
	now := time.Now().UTC()
	opens := now.Truncate(time.Minute).Add(3 * time.Minute)
	es := w.want("lobby", promptly, ready)
	original := es.DeepCopy()
	es.Status.LastWake = &v1alpha1.LastWake{Took: metav1.Duration{Duration: opens.Sub(now) - 35*time.Second}, Message: "It took long.", Asked: metav1.NewMicroTime(now)}
	if err := w.c.Status().Patch(t.Context(), es, client.MergeFrom(original)); err != nil { // the operator may write meanwhile
		t.Fatal(err)
	}
	w.edit(es, func() {
		es.Spec.Awake = []v1alpha1.TimeWindow{{Cron: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Hour}}}
	})
	w.want("lobby", promptly, hasCondition(conditions.AwakeWindowsValid, metav1.ConditionTrue, reasons.WindowClosed))
	w.must("the target at 1", 30*time.Second+promptly, since, toReplicas("lobby", 1))
	if early := time.Until(now.Add(5 * time.Second)); early > 0 {
		t.Errorf("it was woken %s too early", early)
	}
	w.servers("lobby", newServer())
	// Its wake took less than the one before, and it is awake all the same.
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), func(es *v1alpha1.ElasticService) error {
		if took := es.Status.LastWake.Took.Duration; took > 30*time.Second {
			return fmt.Errorf("its wake took %s by its status", took)
		}
		return nil
	})
	w.stays("lobby", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), isKeptAwakeBy("awake[0]"))
}

func TestWhoScalesToZeroInAWindowIsObeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 1)
	w.service("lobby", selectorless)
	w.elastic("lobby", handoffNever, func(es *v1alpha1.ElasticService) {
		es.Spec.Awake = []v1alpha1.TimeWindow{openUntil(time.Now().Add(time.Hour))}
	})
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), isKeptAwakeBy("awake[0]"))
	w.scaleLobby(0)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), ready,
		hasCondition(conditions.AwakeWindowsValid, metav1.ConditionTrue, reasons.ScaledToZero))
	since := w.latest()
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if n := w.count(since, writesTo("lobby")); n > 0 {
		t.Errorf("the target was written %d times", n)
	}
	// The annotation is a later word.
	es := w.want("lobby", promptly)
	w.edit(es, func() {
		metav1.SetMetaDataAnnotation(&es.ObjectMeta, wellknown.KeepAwakeUntilAnnotation, "2999-01-01T00:00:00Z")
	})
	w.must("the target at 1", promptly, since, toReplicas("lobby", 1))
}

func TestTheAnnotationKeepsAServiceAwakeUntilItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dozing("lobby", func(es *v1alpha1.ElasticService) { es.Spec.Wake = &v1alpha1.Wake{When: v1alpha1.WakeOnNever} })
	since := w.latest()
	annotate := func(value string) {
		es := w.want("lobby", promptly)
		w.edit(es, func() { metav1.SetMetaDataAnnotation(&es.ObjectMeta, wellknown.KeepAwakeUntilAnnotation, value) })
	}
	annotate("tonight")
	w.want("lobby", promptly, hasCondition(conditions.AwakeWindowsValid, metav1.ConditionFalse, reasons.AnnotationInvalid),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.AnnotationInvalid), inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	// A client doesn't wake it.
	if got, err := call(t, 0, http.MethodPost, informerapi.WakePath, resolverToken(t), []byte(`{"count":1,"svc":"lobby","namespace":"`+w.ns+`"}`)); err != nil ||
		got.code != http.StatusNotFound || !strings.Contains(string(got.body), "clients never wake the service") {
		t.Errorf("a wake call was answered %d %s, %v", got.code, got.body, err)
	}
	if n := w.count(since, writesTo("lobby")); n > 0 {
		t.Errorf("the target was written %d times", n)
	}
	until := time.Now().Add(10 * time.Second).Truncate(time.Second)
	annotate(until.UTC().Format(time.RFC3339))
	w.must("the target at 1", promptly, since, toReplicas("lobby", 1))
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy), ready, isKeptAwakeBy("the annotation "+wellknown.KeepAwakeUntilAnnotation))
	w.wantEvent("Waking", "by the annotation "+wellknown.KeepAwakeUntilAnnotation+". Scaled Deployment lobby from 0 to 1 replicas.")
	es := w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if slept := es.Status.LastSleepTime.Time; slept.Before(until) {
		t.Errorf("it slept at %s, before %s", slept, until)
	}
}

// What the API server refuses is said, and the rest goes on.
func TestAServiceThatMayNotBeWokenForItsWindowSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.asleep("lobby")
	w.forbidScaling()
	es := w.want("lobby", promptly, ready)
	w.edit(es, func() { es.Spec.Awake = []v1alpha1.TimeWindow{openUntil(time.Now().Add(time.Hour))} })
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetForbidden),
		message(conditions.Ready, "awake[0] keeps the service awake, and the operator may not write the scale of Deployment "+w.ns+"/lobby"))
	w.wantWarning(reasons.TargetForbidden, "let it scale Deployment "+w.ns+"/lobby")
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	if n := w.count(since, writesTo("lobby")); n > 0 {
		t.Errorf("the target was written %d times", n)
	}
}

// Neither a client nor a window wakes it, and when its time is over nobody need change anything.
func TestAServiceIsKeptAsleepUntilItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dozing("lobby")
	since := w.latest()
	es := w.want("lobby", promptly)
	until := time.Now().Add(10 * time.Second).Truncate(time.Second)
	w.edit(es, func() {
		metav1.SetMetaDataAnnotation(&es.ObjectMeta, wellknown.KeepAsleepUntilAnnotation, until.UTC().Format(time.RFC3339))
		es.Spec.Awake = []v1alpha1.TimeWindow{openUntil(time.Now().Add(time.Hour))}
	})
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), hasCondition(conditions.AwakeWindowsValid, metav1.ConditionTrue, reasons.KeptAsleep))
	w.wantEvent(reasons.KeptAsleep, "Nothing wakes the service until")
	if got, err := call(t, 0, http.MethodPost, informerapi.WakePath, resolverToken(t), []byte(`{"count":1,"svc":"lobby","namespace":"`+w.ns+`"}`)); err != nil ||
		time.Now().Before(until) && (got.code != http.StatusNotFound || !strings.Contains(string(got.body), "the service is kept asleep")) {
		t.Errorf("a wake call was answered %d %s, %v", got.code, got.body, err)
	}
	woken := w.must("the target at 1", afterSettling, since, toReplicas("lobby", 1))
	if woken.at.Before(until) {
		t.Errorf("it was woken at %s, before %s", woken.at, until)
	}
	w.want("lobby", promptly, isKeptAwakeBy("awake[0]"))
}
