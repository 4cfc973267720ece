package status

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/text"
)

// wakeGroupValid is the condition whether those count, and are up in time, that are woken with a
// service. It says, too, who keeps this one awake.
func wakeGroupValid(es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings, p planner.Plan) metav1.Condition {
	const kind = conditions.WakeGroupValid
	v := p.Group
	switch {
	case f.Obstacle != nil || !es.DeletionTimestamp.IsZero():
		return condition.Unknown(kind, reasons.NotObserved, "It isn't looked for what is woken with the service.")
	case v.Flaw != nil:
		return condition.False(kind, v.Flaw.Reason, "%s", v.Flaw.Message)
	case p.Phase == v1alpha1.PhaseWaking && len(p.WaitsFor) > 0:
		return condition.True(kind, reasons.WaitsForOthers, "Clients are held until %s of spec.wakeWith is up, too, for %s at most.", text.Some(p.WaitsFor), v.Bound)
	case v.By != "" && o.Scale.Err != nil:
		return condition.Unknown(kind, reasons.NotObserved, "%s is to keep the service awake, and the target's scale isn't known.", v.By)
	case v.By != "" && p.Phase == v1alpha1.PhaseAsleep && !p.Raise:
		return condition.True(kind, reasons.ScaledToZero,
			"Somebody scaled the target to zero, though %s would keep it awake: it sleeps until a client wakes it or that one wakes again.", v.By)
	case v.By != "":
		return condition.True(kind, reasons.KeptAwake, "%s", kept(p.GroupKeepsAwake()))
	case len(es.Spec.WakeWith) > 0:
		return condition.True(kind, reasons.OK, "Woken with the service: %s.", strings.Join(es.Spec.WakeWith, ", "))
	default:
		return condition.True(kind, reasons.NotNeeded, "The spec names nothing that is woken with the service, and nothing that isn't asleep names it.")
	}
}
