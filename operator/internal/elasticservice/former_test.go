package elasticservice

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestASleepByHandKeepsHowManyReplicasThereWere(t *testing.T) {
	es := lobby(v1alpha1.PhaseAwake, at(-600))
	es.Status.Replicas, es.Status.ReplicasBeforeSleep = 3, 1
	o := seen(0)
	setStatus(t0, es, o, makePlan(t0, es, o), nil)
	if es.Status.Phase != v1alpha1.PhaseAsleep || Wanted(es).FromZero != 3 {
		t.Errorf("a wake of %s asks for %d replicas, want 3 as before", es.Status.Phase, Wanted(es).FromZero)
	}
	// It stays so.
	setStatus(at(1), es, o, makePlan(at(1), es, o), nil)
	if Wanted(es).FromZero != 3 {
		t.Errorf("later a wake asks for %d", Wanted(es).FromZero)
	}
}

func TestATargetThatIsUpIsNotAsleep(t *testing.T) {
	es := lobby(v1alpha1.PhaseWaking, at(-1))
	es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: "lobby"}}
	o := seen(1)
	setStatus(t0, es, o, makePlan(t0, es, o), nil)
	if es.Status.AsleepTarget != nil {
		t.Errorf("%v is asleep", es.Status.AsleepTarget)
	}
}
