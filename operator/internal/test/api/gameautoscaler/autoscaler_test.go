package gameautoscaler_test

import (
	"errors"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
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
