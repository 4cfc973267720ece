package gameautoscaler_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// Asleep, an autoscaler rests. A schedule may wake, and keeps awake.
func TestAScheduleWakesAndTheOthersRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gameType(0)
	now := w.Clock.Now().UTC()
	opens := now.Truncate(time.Minute).Add(10 * time.Minute)
	evening := v1alpha1.AutoscalerPolicy{Name: "evening", Schedule: &v1alpha1.SchedulePolicy{
		TimeWindow: v1alpha1.TimeWindow{Cron: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Hour}},
		Replicas:   3, Wake: true,
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
