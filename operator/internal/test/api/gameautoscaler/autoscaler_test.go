package gameautoscaler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse

func buffer(servers int) v1alpha1.AutoscalerPolicy {
	return v1alpha1.AutoscalerPolicy{Name: "spare", Buffer: &v1alpha1.BufferPolicy{Servers: new(intstr.FromInt(servers))}}
}

func byPlayers() v1alpha1.AutoscalerPolicy {
	return v1alpha1.AutoscalerPolicy{Name: "load", ActivePlayers: &v1alpha1.ActivePlayersPolicy{}}
}

func webhook() v1alpha1.AutoscalerPolicy {
	return v1alpha1.AutoscalerPolicy{Name: "ask", Webhook: &v1alpha1.WebhookPolicy{
		Service: &v1alpha1.WebhookService{Name: "decider", Port: 8000}, Format: v1alpha1.WebhookAgones,
	}}
}

// Spare Servers are added as players come, and taken away as they leave; with each change there is
// one event, and none without.
func TestABufferFollowsItsPlayers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(0, 0)
	w.autoscaler(scaler, buffer(2))
	w.pass()
	w.want(2, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)

	w.plays(3, 0)
	w.after(30 * time.Second)
	w.want(3, scaler, conditions.AbleToScale, isTrue, reasons.ReadyToScale)
	if s := w.status(scaler); s.LastScaleTime == nil || !s.LastScaleTime.Time.Equal(w.Clock.Now()) || s.DesiredReplicas != 3 || s.CurrentReplicas != 2 {
		t.Errorf("the status is %+v", s)
	}
	if n := w.Emitted("Scaled"); n != 1 {
		t.Errorf("%d events about one change", n)
	}

	w.plays(3, 0, 0)
	w.after(30 * time.Second)
	w.plays(0, 0, 0)
	w.after(30 * time.Second)
	w.want(2, scaler, conditions.Limited, isFalse, reasons.WithinBounds)
	w.plays(0, 0)
	w.after(time.Hour)
	if n := w.Emitted("Scaled"); n != 1 {
		t.Errorf("%d events about one change", n)
	}
}

// Scenario 24: active players above or below the thresholds, with a cooldown that runs, or not all
// ready: one step, or none.
func TestActivePlayersChangeByOneStepOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(9, 9)
	gas := w.autoscaler(scaler, byPlayers())
	gas.Spec.Behavior.ScaleUp.Cooldown = &metav1.Duration{Duration: time.Minute}
	if err := w.Admin.Update(t.Context(), gas); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.want(3, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated) // one step, though 4 would be full, too

	w.plays(9, 9, -1) // the new one starts
	w.after(2 * time.Minute)
	w.want(3, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	w.plays(10, 10, 9)
	w.after(time.Second)
	w.want(4, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	w.plays(10, 10, 10, 10)
	w.after(59 * time.Second) // the cooldown runs
	w.want(4, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	w.after(time.Second)
	w.want(5, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)

	w.plays(1, 1, 1, 1, 1)
	w.after(time.Hour)
	w.want(4, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
}

// Scenario 23: a webhook that fails changes nothing, says so once, and what it answers is clamped.
func TestAWebhookThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(3)
	w.plays(1, 0, 0)
	w.webhooks.none = true
	w.autoscaler(scaler, webhook())
	w.pass()
	w.want(3, scaler, conditions.Active, isFalse, reasons.WebhookNotAnswered)
	w.Emitted("")

	w.webhooks.none, w.webhooks.answer = false, scalewebhook.Answer{Scale: true, Replicas: 5}
	w.after(30 * time.Second)
	w.want(5, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	asked := w.webhooks.asked[len(w.webhooks.asked)-1]
	if asked.Name != game || asked.Replicas != 3 || asked.ReadyReplicas != 3 || asked.AllocatedReplicas != 1 || asked.Players != 1 || asked.Capacity != 30 {
		t.Errorf("it was asked about %+v", asked)
	}
	if e := w.webhooks.of[0]; e.Service == nil || e.Service.Name != "decider" || e.Service.Port != 8000 || e.Format != scalewebhook.FormatAgones {
		t.Errorf("%+v was asked", e)
	}

	for _, reason := range []scalewebhook.Reason{scalewebhook.Timeout, scalewebhook.BadStatus, scalewebhook.BadAnswer, scalewebhook.CircuitOpen} {
		w.webhooks.err = &scalewebhook.Error{Reason: reason, Message: "it is broken"}
		for range 3 {
			w.after(30 * time.Second)
		}
		w.want(5, scaler, conditions.Active, isFalse, "Webhook"+string(reason))
		if n := w.Emitted("Webhook" + string(reason)); n != 1 {
			t.Errorf("%d events about one failure, %s", n, reason)
		}
	}
	w.webhooks.err, w.webhooks.answer = nil, scalewebhook.Answer{}
	w.after(30 * time.Second)
	w.want(5, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	w.webhooks.answer = scalewebhook.Answer{Scale: true, Replicas: 9999}
	w.after(30 * time.Second)
	w.want(10, scaler, conditions.Limited, isTrue, reasons.TooManyReplicas)
	w.webhooks.answer = scalewebhook.Answer{Scale: true, Replicas: 0}
	w.after(30 * time.Second)
	w.want(1, scaler, conditions.Limited, isTrue, reasons.TooFewReplicas)
}

// Asleep, an autoscaler rests. A schedule may wake, and keeps awake.
func TestAScheduleWakesAndTheOthersRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(0)
	now := w.Clock.Now().UTC()
	opens := now.Truncate(time.Minute).Add(10 * time.Minute)
	evening := v1alpha1.AutoscalerPolicy{Name: "evening", Schedule: &v1alpha1.SchedulePolicy{
		Cron: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Hour}, Replicas: 3, Wake: true,
	}}
	w.autoscaler(scaler, evening, buffer(2), webhook())
	w.pass()
	w.want(0, scaler, conditions.Active, isFalse, reasons.Asleep)
	if len(w.webhooks.asked) > 0 {
		t.Error("a webhook was asked about a target that sleeps")
	}
	result, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: scaler}})
	if left := opens.Sub(now); err != nil || result.RequeueAfter != left {
		t.Errorf("it looks again after %s, want %s: %v", result.RequeueAfter, left, err)
	}

	w.Clock.Pass(opens.Sub(now))
	w.pass()
	w.want(3, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	if s := w.status(scaler); s.KeepAwakeUntil == nil || !s.KeepAwakeUntil.Time.Equal(opens.Add(time.Hour)) {
		t.Errorf("it keeps awake until %v, want %s", s.KeepAwakeUntil, opens.Add(time.Hour))
	}
	w.plays(0, 0, 0)
	w.after(time.Hour)
	if s := w.status(scaler); s.KeepAwakeUntil != nil {
		t.Errorf("it keeps awake until %v after its window", s.KeepAwakeUntil)
	}
}

// Reports that are stale change nothing, and are asked for only where something would change.
func TestStaleReportsDecideNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(4)
	w.plays(0, 0, 0, 0)
	w.autoscaler(scaler, buffer(4))
	w.pass()
	if w.reports.asked > 0 {
		t.Errorf("reports were asked for %d times though nothing changes", w.reports.asked)
	}
	delete(w.reports.recent, game+"-02")
	gas := &v1alpha1.GameAutoscaler{}
	if err := w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: scaler}, gas); err != nil {
		t.Fatal(err)
	}
	gas.Spec.Policies[0] = buffer(1)
	if err := w.Admin.Update(t.Context(), gas); err != nil {
		t.Fatal(err)
	}
	w.after(time.Hour)
	w.want(4, scaler, conditions.Active, isFalse, reasons.ReportsStale)
	w.reports.err = errors.New("a replica doesn't answer")
	w.after(time.Hour)
	w.want(4, scaler, conditions.Active, isFalse, reasons.ReportsStale)
	w.reports.err = nil
	w.plays(0, 0, 0, 0)
	w.after(time.Hour)
	w.want(1, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
}

// Of two autoscalers of a target the younger does nothing and says so, until the other is gone.
func TestOfTwoAutoscalersTheYoungerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(3)
	w.plays(0, 0, 0)
	older := w.autoscaler("zulu", buffer(2))
	// Ages are to a second.
	w.autoscaler("alpha", buffer(6))
	young := "alpha"
	second := &v1alpha1.GameAutoscaler{}
	if err := w.Admin.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "alpha"}, second); err != nil {
		t.Fatal(err)
	}
	if second.CreationTimestamp.Equal(&older.CreationTimestamp) && second.UID < older.UID {
		older, young = second, "zulu"
	}
	w.pass()
	wanted := map[string]int32{"alpha": 6, "zulu": 2}
	w.want(wanted[older.Name], young, conditions.Active, isFalse, reasons.TargetTaken)
	if err := w.Admin.Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	w.after(time.Hour)
	w.want(wanted[young], young, conditions.Active, isTrue, reasons.PoliciesEvaluated)
}

// Nobody fights: what somebody else scales is left alone, and so is what isn't there.
func TestWhatIsNotItsOwnToScaleIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gas := w.autoscaler(scaler, buffer(5))
	w.pass()
	active := func(reason string) {
		t.Helper()
		c := meta.FindStatusCondition(w.status(scaler).Conditions, conditions.Active)
		if c == nil || c.Status != isFalse || c.Reason != reason {
			t.Errorf("Active is %+v, want False %s", c, reason)
		}
		if n := w.Emitted(reason); n != 1 {
			t.Errorf("%d events say %s, want 1", n, reason)
		}
	}
	active(reasons.TargetNotFound)
	w.gameType(2)
	w.plays(0, 0)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "keda-hpa-duel"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas:    3,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game},
		},
	}
	if err := w.Admin.Create(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
	w.after(time.Hour)
	w.want(2, scaler, conditions.Active, isFalse, reasons.ScaledByOther)
	if err := w.Admin.Delete(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
	w.after(time.Hour)
	w.want(5, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)

	f := &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "duel-5f7c", Labels: map[string]string{"dormouse.dev/gametype": game}},
		Spec:       v1alpha1.FleetSpec{Replicas: new(int32(2)), Template: v1alpha1.ServerTemplate{Spec: serverSpec()}},
	}
	if err := w.Admin.Create(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(gas), gas); err != nil {
		t.Fatal(err)
	}
	gas.Spec.TargetRef = v1alpha1.AutoscalerTarget{Kind: v1alpha1.AutoscalerTargetFleet, Name: f.Name}
	if err := w.Admin.Update(t.Context(), gas); err != nil {
		t.Fatal(err)
	}
	w.after(time.Hour)
	active(reasons.TargetOwned)
}

// Sentences with numbers that change all the time are written once an interval, and nothing is
// written while nothing changes.
func TestARestingAutoscalerWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(5, 5)
	w.autoscaler(scaler, byPlayers())
	w.pass()
	w.Writes.Take()
	key := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: scaler}}
	for i := range 29 {
		w.plays(5, int32(5+i%2))
		w.Clock.Pass(time.Second)
		result, err := w.reconciler.Reconcile(t.Context(), key)
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 30*time.Second {
			t.Fatalf("it looks again after %s: %v", result.RequeueAfter, err)
		}
	}
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("within an interval it made %v", did)
	}
	w.plays(5, 6)
	w.after(time.Second)
	if message := w.status(scaler).Policies[0].Message; message != "11 of 20 players are on 2 Servers." {
		t.Errorf("after the interval the status says %q", message)
	}
	for range 10 {
		w.Clock.Pass(30 * time.Second)
		if _, err := w.reconciler.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("at rest it made %v", did)
	}
}

// What a forecast remembers is written once an hour, and another leader goes on with it.
func TestAForecastOutlastsItsLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(1)
	w.plays(4)
	usual := v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{MinWeeks: new(int32(1))}}
	w.autoscaler(scaler, usual)
	w.Clock.Pass(time.Hour - time.Duration(w.Clock.Now().UTC().Minute())*time.Minute - time.Duration(w.Clock.Now().Second())*time.Second)
	w.pass()
	memory := func() string { return w.status(scaler).Policies[0].Memory }
	first := memory()
	if first == "" {
		t.Fatal("nothing is remembered")
	}
	w.plays(5)
	w.after(10 * time.Minute)
	if memory() != first {
		t.Error("it was written within the hour")
	}
	w.after(50 * time.Minute)
	second := memory()
	if second == first {
		t.Error("it was not written after the hour")
	}
	policy := w.status(scaler).Policies[0]
	if policy.Reason != reasons.NobodyExpected {
		t.Errorf("the forecast says %+v", policy)
	}

	// A week later, with another leader and the game made anew, those five are expected.
	w.replaceLeader()
	w.pass()
	if err := w.Admin.Delete(t.Context(), &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game}}); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if memory() != second {
		t.Error("without its target it remembers nothing")
	}
	w.gameType(1)
	w.plays(0)
	w.after(7*24*time.Hour - time.Hour)
	policy = w.status(scaler).Policies[0]
	if policy.Reason != reasons.PlayersExpected || policy.Wish == nil || *policy.Wish != 1 {
		t.Errorf("a week later the forecast of another leader says %+v", policy)
	}
}

// Servers that stay silent are said to be for as long as they are, and nothing is taken away.
func TestSilentServersAreSaidForAsLongAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(4)
	w.plays(0, 0, 0, 0)
	gas := w.autoscaler(scaler, buffer(1))
	gas.Spec.Behavior.ScaleDown = v1alpha1.AutoscalerScaleDown{} // with the default window
	if err := w.Admin.Update(t.Context(), gas); err != nil {
		t.Fatal(err)
	}
	w.pass()
	delete(w.reports.recent, game+"-02")
	w.after(5 * time.Minute)
	for range 30 {
		w.want(4, scaler, conditions.Active, isFalse, reasons.ReportsStale)
		w.after(30 * time.Second)
	}
	if n := w.Emitted(reasons.ReportsStale); n != 1 {
		t.Errorf("%d events about Servers that stay silent, want 1", n)
	}
	w.plays(0, 0, 0, 0)
	w.after(30 * time.Second)
	w.want(4, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated) // the window begins anew
	w.after(5 * time.Minute)
	w.want(1, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
}

// What was answered and learnt about one target is nothing to another.
func TestAnotherTargetBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(4, 4)
	gas := w.autoscaler(scaler, v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{}}, webhook())
	w.pass()
	w.after(time.Hour)
	memory := func() string { return w.status(scaler).Policies[0].Memory }
	first, forgotten := memory(), w.webhooks.forgotten
	if first == "" {
		t.Fatal("nothing is remembered")
	}
	f := &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "plain"},
		Spec:       v1alpha1.FleetSpec{Replicas: new(int32(2)), Template: v1alpha1.ServerTemplate{Spec: serverSpec()}},
	}
	if err := w.Admin.Create(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(gas), gas); err != nil {
		t.Fatal(err)
	}
	gas.Spec.TargetRef = v1alpha1.AutoscalerTarget{Kind: v1alpha1.AutoscalerTargetFleet, Name: f.Name}
	if err := w.Admin.Update(t.Context(), gas); err != nil {
		t.Fatal(err)
	}
	w.after(time.Second)
	if memory() == first {
		t.Error("another target's weeks are remembered")
	}
	if w.webhooks.forgotten == forgotten {
		t.Error("another target's answers count")
	}
}

// A change that the API server refuses is said, and tried again after a while only.
func TestAChangeThatIsRefusedIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(0, 0)
	refused := &refusing{Scaler: w.reconciler.Scaler, err: apierrors.NewForbidden(schema.GroupResource{Resource: "gametypes"}, game, errors.New("a policy says no"))}
	w.reconciler.Scaler = refused
	w.autoscaler(scaler, buffer(3))
	for range 29 {
		w.pass()
		w.Clock.Pass(time.Second)
	}
	w.want(2, scaler, conditions.AbleToScale, isFalse, reasons.ScaleRefused)
	if refused.tried != 1 || w.Emitted(reasons.ScaleRefused) != 1 {
		t.Errorf("it was tried %d times within half a minute, want once with one event", refused.tried)
	}
	refused.err = nil
	w.after(time.Second)
	w.want(3, scaler, conditions.AbleToScale, isTrue, reasons.ReadyToScale)
	if s := w.status(scaler); s.LastScaleTime == nil {
		t.Error("the status doesn't say when it was scaled")
	}
}

// refusing refuses to write scales while err is set.
type refusing struct {
	gameautoscaler.Scaler
	err   error
	tried int
}

func (r *refusing) Set(ctx context.Context, ref target.Ref, scale *autoscalingv1.Scale, replicas int32) error {
	if r.tried++; r.err != nil {
		return r.err
	}
	return r.Scaler.Set(ctx, ref, scale, replicas)
}

// A change is told of, with its time, though the status could not be written with it.
func TestAChangeIsToldOfThoughTheStatusWasWrittenInBetween(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(2)
	w.plays(0, 0)
	w.autoscaler(scaler, buffer(2))
	w.pass()
	w.plays(1, 1)
	fixture.Eventually(t, promptly, "the cache shows the players", func(context.Context) error {
		if !w.CacheIsCurrent(kinds...) { //nolint:contextcheck // it has the test's
			return errors.New("not yet")
		}
		return nil
	})
	// Somebody writes the object just before the status is.
	w.reconciler.Scaler = &before{Scaler: w.reconciler.Scaler, do: func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
		gas := &v1alpha1.GameAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: scaler}}
		if err := w.Admin.Patch(t.Context(), gas, patch); err != nil {
			t.Error(err)
		}
	}}
	w.Clock.Pass(30 * time.Second)
	w.pass()
	w.want(4, scaler, conditions.Active, isTrue, reasons.PoliciesEvaluated)
	if s := w.status(scaler); s.LastScaleTime == nil || !s.LastScaleTime.Time.Equal(w.Clock.Now()) {
		t.Errorf("the status says that it was scaled at %v, want %s", s.LastScaleTime, w.Clock.Now())
	}
	if n := w.Emitted("Scaled"); n != 1 {
		t.Errorf("%d events about one change", n)
	}
}

// before does something just before a scale is written.
type before struct {
	gameautoscaler.Scaler
	do func()
}

func (b *before) Set(ctx context.Context, ref target.Ref, scale *autoscalingv1.Scale, replicas int32) error {
	b.do()
	return b.Scaler.Set(ctx, ref, scale, replicas)
}
