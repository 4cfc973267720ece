package gameautoscaler

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// noEvents are the reasons that are no failure, or none yet.
var noEvents = []string{reasons.Asleep, reasons.TargetDeleted, reasons.WebhookNotAnswered}

// scaledNotice is the event about a change of replicas.
func scaledNotice(from int32, p *planner.Plan) kit.Notice {
	return kit.Normal("Scaled", "Scale", "From %d to %s. %s", from, text.Servers(p.Desired), p.ActiveMessage())
}

// failures are the events about failures that begin with a pass, or become others.
func failures(before, after *v1alpha1.GameAutoscalerStatus) (list []kit.Notice) {
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
