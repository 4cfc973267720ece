package status

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/schedule"
)

// keptAwake is what keeps a service awake; nil: nothing does, or somebody has scaled it to zero.
func keptAwake(es *v1alpha1.ElasticService, p planner.Plan) *v1alpha1.KeptAwake {
	switch kept := p.KeptAwake(es); {
	case kept.Open:
		return &v1alpha1.KeptAwake{By: kept.By}
	case kept.Until.IsZero():
		return nil
	default:
		return &v1alpha1.KeptAwake{Until: new(metav1.Time{Time: kept.Until}.Rfc3339Copy()), By: kept.By}
	}
}

// awakeWindowsValid is the condition whether what keeps a service awake can be read.
func awakeWindowsValid(es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings, p planner.Plan) metav1.Condition {
	const kind = conditions.AwakeWindowsValid
	v := p.Awake
	switch {
	case f.Obstacle != nil || !es.DeletionTimestamp.IsZero():
		return condition.Unknown(kind, reasons.NotObserved, "It isn't looked for what keeps the service awake.")
	case v.Flaw != nil:
		return condition.False(kind, v.Flaw.Reason, "%s", v.Flaw.Message)
	case !v.Asleep.IsZero():
		return condition.True(kind, reasons.KeptAsleep, "%s", keptAsleep(v.Asleep))
	case !v.Until.IsZero() && o.Scale.Err != nil:
		return condition.Unknown(kind, reasons.NotObserved, "%s is to keep the service awake until %s, and the target's scale isn't known.", v.By, schedule.Clock(v.Until))
	case !v.Until.IsZero() && p.Phase == v1alpha1.PhaseAsleep && !p.Raise:
		return condition.True(kind, reasons.ScaledToZero,
			"Somebody scaled the target to zero, though %s would keep it awake until %s: it sleeps until a client wakes it or a window opens.", v.By, schedule.Clock(v.Until))
	case !v.Until.IsZero():
		return condition.True(kind, reasons.KeptAwake, "%s", keptUntil(v.Until, v.By))
	case !v.Opens.IsZero():
		return condition.True(kind, reasons.WindowClosed, "The next window, %s, opens at %s.", v.OpensBy, schedule.Clock(v.Opens))
	case len(es.Spec.Awake) > 0:
		return condition.True(kind, reasons.WindowClosed, "No window opens in the next years.")
	default:
		return condition.True(kind, reasons.NotNeeded, "Neither the spec nor an annotation keeps the service awake.")
	}
}

// kept describes what keeps the service awake.
func kept(k idleness.KeptAwake) string {
	if k.Open {
		return "The service is kept awake by " + k.By + " until that is asleep."
	}
	return keptUntil(k.Until, k.By)
}

func keptAsleep(until time.Time) string {
	return "Nothing wakes the service until " + schedule.Clock(until) + ", or keeps it awake, by the annotation " + wellknown.KeepAsleepUntilAnnotation + "; who scales it up is obeyed."
}

func keptUntil(until time.Time, by string) string {
	return "The service is kept awake until " + schedule.Clock(until) + " by " + by + "."
}

// Raised is the event about a service that was woken because something keeps it awake.
func Raised(es *v1alpha1.ElasticService, p planner.Plan, before, after int32) kit.Notice {
	return kit.Normal("Waking", "Wake", "%s Scaled %s %s from %d to %d replicas.",
		kept(p.KeptAwake(es)), es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name, before, after)
}

// awakeEvents are emitted when something begins to keep a service awake that is awake, or asleep.
func awakeEvents(before, after *v1alpha1.ElasticService, p planner.Plan) []kit.Notice {
	if !p.Awake.Asleep.IsZero() {
		says := func(es *v1alpha1.ElasticService) bool {
			c := meta.FindStatusCondition(es.Status.Conditions, conditions.AwakeWindowsValid)
			return c != nil && c.Reason == reasons.KeptAsleep
		}
		if says(before) || !says(after) {
			return nil
		}
		return []kit.Notice{kit.Normal(reasons.KeptAsleep, "Sleep", "%s", keptAsleep(p.Awake.Asleep))}
	}
	is, was := after.Status.KeptAwake, before.Status.KeptAwake
	if is == nil || p.Raise || was != nil && was.By == is.By {
		return nil
	}
	return []kit.Notice{kit.Normal(reasons.KeptAwake, "Wake", "%s", kept(p.KeptAwake(after)))}
}
