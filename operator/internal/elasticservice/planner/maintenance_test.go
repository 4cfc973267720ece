package planner_test

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// It is kept asleep for half an hour of a window's hour, while a service that names it is awake.
func TestAServiceThatIsKeptAsleepIsWokenByNothing(t *testing.T) {
	for name, c := range map[string]struct {
		was      v1alpha1.Phase
		now      float64
		replicas int32
		used     bool
		phase    v1alpha1.Phase
		raise    bool
		again    time.Duration
	}{
		"asleep":                        {v1alpha1.PhaseAsleep, 1, 0, false, v1alpha1.PhaseAsleep, false, 1799 * time.Second},
		"asleep, and its time is over":  {v1alpha1.PhaseAsleep, 1800, 0, false, v1alpha1.PhaseAsleep, true, 1800 * time.Second},
		"awake and used":                {v1alpha1.PhaseAwake, 1, 1, true, v1alpha1.PhaseAwake, false, 0},
		"awake and idle":                {v1alpha1.PhaseAwake, 1, 1, false, v1alpha1.PhaseFallingAsleep, false, 0},
		"scaled up by an administrator": {v1alpha1.PhaseAsleep, 1, 1, true, v1alpha1.PhaseAwake, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			es := noon(fixture.Lobby(c.was, fixture.At(-7200)))
			es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: "2026-11-01T12:30:00Z", wellknown.KeepAwakeUntilAnnotation: "2026-11-01T13:00:00Z"}
			o := seen.Of(c.replicas)
			if c.replicas > 0 {
				o = seen.Of(c.replicas, seen.UpServer)
			} else {
				es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef}
			}
			o.Triggers = trigger.Reading{At: fixture.At(c.now), BelowSince: fixture.At(-7200)}
			if c.used {
				o.Triggers.BelowSince = time.Time{}
			}
			o.Group = &wakegroup.Seen{Wakers: []wakegroup.Other{{Name: "page", Phase: v1alpha1.PhaseAwake, SleptUntil: fixture.At(0.5)}}}
			p := seen.Plan(fixture.At(c.now), es, o, planner.Findings{})
			if p.Phase != c.phase || p.Raise != c.raise || c.again > 0 && p.RequeueAfter.Duration() != c.again {
				t.Errorf("%s, raise %t, again in %s; want %s, %t, %s", p.Phase, p.Raise, p.RequeueAfter, c.phase, c.raise, c.again)
			}
		})
	}
}
