package gameautoscaler

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// noEvents are the reasons that are no failure, or none yet.
var noEvents = []string{reasons.Asleep, reasons.TargetDeleted, reasons.WebhookNotAnswered}

// notices are the events of a pass: one for a change of replicas, and one when a failure begins
// or becomes another.
func notices(before, after *v1alpha1.GameAutoscalerStatus, o observed, p plan) (list []kit.Notice) {
	if p.desired != o.desired {
		list = append(list, kit.Normal("Scaled", "Scale", "From %d to %s. %s", o.desired, servers(p.desired), p.active.message))
	}
	for _, kind := range []string{conditions.Active, conditions.AbleToScale} {
		is, was := meta.FindStatusCondition(after.Conditions, kind), meta.FindStatusCondition(before.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || slices.Contains(noEvents, is.Reason) ||
			was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		list = append(list, kit.Warning(is.Reason, "Scale", "%s", is.Message))
	}
	return list
}
