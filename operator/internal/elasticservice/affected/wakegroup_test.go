package affected

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestWhatOthersInAWakeGroupLearn(t *testing.T) {
	type es = v1alpha1.ElasticService
	for name, c := range map[string]struct {
		was                     v1alpha1.Phase
		change                  func(*es)
		woke, regrouped, cameUp bool
	}{
		"nothing":                   {was: v1alpha1.PhaseAsleep, change: func(*es) {}},
		"a client's stamp":          {was: v1alpha1.PhaseAsleep, change: func(es *es) { es.Status.LastWakeTime = fixture.Micro(fixture.At(0)) }, woke: true},
		"a stamp while it is awake": {was: v1alpha1.PhaseAwake, change: func(es *es) { es.Status.LastWakeTime = fixture.Micro(fixture.At(0)) }},
		"that it is being woken":    {was: v1alpha1.PhaseAsleep, change: func(es *es) { es.Status.KeptAwake = &v1alpha1.KeptAwake{By: "awake[0]"} }, woke: true},
		"that it wakes":             {was: v1alpha1.PhaseAsleep, change: func(es *es) { es.Status.Phase = v1alpha1.PhaseWaking }, woke: true},
		"that it is up":             {was: v1alpha1.PhaseWaking, change: func(es *es) { es.Status.Phase = v1alpha1.PhaseAwake }, woke: true, cameUp: true},
		"that it is about to sleep": {was: v1alpha1.PhaseAwake, change: func(es *es) { es.Status.Phase = v1alpha1.PhaseFallingAsleep }, woke: true, cameUp: true},
		"that its target is gone": {was: v1alpha1.PhaseAwake, change: func(es *es) {
			es.Status.Conditions = []metav1.Condition{{Type: conditions.TargetFound, Status: metav1.ConditionFalse, Reason: reasons.TargetNotFound}}
		}, woke: true},
		"how many clients it has": {was: v1alpha1.PhaseAwake, change: func(es *es) { es.Status.Sessions = 3 }},
		"other names":             {was: v1alpha1.PhaseAwake, change: func(es *es) { es.Spec.WakeWith = nil }, regrouped: true},
		"that it is kept asleep": {was: v1alpha1.PhaseAsleep, change: func(es *es) {
			es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: "2026-11-01T14:00:00Z"}
		}, cameUp: true},
		"that it is being deleted": {was: v1alpha1.PhaseAwake, change: func(es *es) { es.DeletionTimestamp = &metav1.Time{Time: fixture.At(0)} }, woke: true, regrouped: true, cameUp: true},
	} {
		before := fixture.Lobby(c.was, fixture.At(-60))
		before.Spec.WakeWith = []string{"database"}
		after := before.DeepCopy()
		c.change(after)
		for what, one := range map[string]struct {
			p    predicate.Predicate
			want bool
		}{"Woke": {Woke(), c.woke}, "Regrouped": {Regrouped(), c.regrouped}, "CameUp": {CameUp(), c.cameUp}} {
			if got := one.p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != one.want {
				t.Errorf("%s: %s lets it through: %t", name, what, got)
			}
			if one.p.Create(event.CreateEvent{Object: after, IsInInitialList: true}) || !one.p.Create(event.CreateEvent{Object: after}) || !one.p.Delete(event.DeleteEvent{Object: after}) {
				t.Errorf("%s doesn't let exactly those through that come after the start, or go", what)
			}
		}
	}
	// Most name nobody.
	before := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-60))
	after := before.DeepCopy()
	after.Status.Phase = v1alpha1.PhaseWaking
	if Woke().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("the wake of one that names nobody is let through")
	}
}
