package planner_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// A window is open from T0, at noon, for an hour.
func noon(es *v1alpha1.ElasticService) *v1alpha1.ElasticService {
	es.Spec.Awake = []v1alpha1.TimeWindow{{Cron: "0 12 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	return es
}

func TestAServiceIsAwakeWhileItsWindowIsOpen(t *testing.T) {
	sleeps := func(es *v1alpha1.ElasticService) {
		es.Status.Phase, es.Status.ReplicasBeforeSleep = v1alpha1.PhaseAsleep, 1
		es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef}
	}
	for name, c := range map[string]struct {
		now      float64
		replicas int32
		change   func(*v1alpha1.ElasticService)
		phase    v1alpha1.Phase
		raise    bool
		again    time.Duration
	}{
		"idle in it, it doesn't sleep":            {1, 1, func(*v1alpha1.ElasticService) {}, v1alpha1.PhaseAwake, false, time.Hour - time.Second},
		"idle at its end, it sleeps":              {3600, 1, func(*v1alpha1.ElasticService) {}, v1alpha1.PhaseFallingAsleep, false, planner.Settle},
		"asleep before it, it is left alone":      {-1, 0, sleeps, v1alpha1.PhaseAsleep, false, time.Second},
		"asleep as it opens, it is woken":         {0, 0, sleeps, v1alpha1.PhaseAsleep, true, time.Hour},
		"asleep after it, it is left alone":       {3600, 0, sleeps, v1alpha1.PhaseAsleep, false, 23 * time.Hour},
		"falling asleep as it opens, it is awake": {0, 1, func(es *v1alpha1.ElasticService) { es.Status.Phase = v1alpha1.PhaseFallingAsleep }, v1alpha1.PhaseAwake, false, time.Hour},
		"scaled to zero in it, it is left alone":  {60, 0, func(*v1alpha1.ElasticService) {}, v1alpha1.PhaseAsleep, false, 59 * time.Minute},
		"being deleted, it isn't kept awake":      {1, 1, func(es *v1alpha1.ElasticService) { fixture.Deleted(es, fixture.At(0)) }, v1alpha1.PhaseAwake, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			es := noon(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200)))
			c.change(es)
			o := seen.Of(c.replicas)
			if c.replicas > 0 {
				o = seen.Of(c.replicas, seen.UpServer)
			}
			o.Triggers = trigger.Reading{At: fixture.At(c.now), BelowSince: fixture.At(-7200)}
			p := seen.Plan(fixture.At(c.now), es, o, planner.Findings{})
			if p.Phase != c.phase || p.Raise != c.raise || c.again > 0 && p.RequeueAfter.Duration() != c.again {
				t.Errorf("%s, raise %t, again in %s; want %s, %t, %s", p.Phase, p.Raise, p.RequeueAfter, c.phase, c.raise, c.again)
			}
			if deleted := !es.DeletionTimestamp.IsZero(); deleted != p.Awake.Next.IsZero() {
				t.Errorf("it is looked at again at %s", p.Awake.Next)
			}
		})
	}
}

// It would be woken again at once.
func TestAServiceThatIsKeptAwakeIsNotGivenUp(t *testing.T) {
	es := noon(fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600)))
	o := seen.Of(1)
	o.Nobody, o.NoneUpSince, o.NoneLastingSince = true, fixture.At(-600), fixture.At(-600)
	if p := seen.Plan(fixture.At(1), es, o, planner.Findings{}); p.Phase != v1alpha1.PhaseWaking || p.RequeueAfter.Duration() != time.Hour-time.Second {
		t.Errorf("in a window it is %s, again in %s", p.Phase, p.RequeueAfter)
	}
	if p := seen.Plan(fixture.At(3600), es, o, planner.Findings{}); p.Phase != v1alpha1.PhaseFallingAsleep {
		t.Errorf("after it, it is %s", p.Phase)
	}
	es.Spec.Awake = nil
	o.KeptAwake = idleness.KeptAwake{Until: fixture.At(90), By: "GameAutoscaler evening"}
	if p := seen.Plan(fixture.At(1), es, o, planner.Findings{}); p.Phase != v1alpha1.PhaseWaking {
		t.Errorf("kept awake by an autoscaler it is %s", p.Phase)
	}
}

func TestTheLongerOneOfAWindowAndAnAutoscalerKeepsAwake(t *testing.T) {
	es := noon(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200)))
	o := seen.Of(1, seen.UpServer)
	o.KeptAwake = idleness.KeptAwake{Until: fixture.At(7200), By: "GameAutoscaler evening"}
	o.Triggers = trigger.Reading{At: fixture.At(3600), BelowSince: fixture.At(-7200)}
	if p := seen.Plan(fixture.At(3600), es, o, planner.Findings{}); p.Phase != v1alpha1.PhaseAwake {
		t.Errorf("after the window it is %s, though an autoscaler keeps it awake", p.Phase)
	}
}
