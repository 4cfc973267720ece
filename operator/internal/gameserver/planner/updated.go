package planner

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// outdated reports whether a Pod was made from an earlier spec of its Server. Of one that an
// earlier version made that isn't known. A Server in a Fleet is replaced by the Fleet.
func outdated(s *v1alpha1.Server, pod *corev1.Pod) bool {
	if pod == nil || InFleet(s) {
		return false
	}
	was, noted := pod.Annotations[wellknown.PodHashAnnotation]
	return noted && !podbuilder.MadeFrom(was, &s.Spec)
}

// restarts reports whether a Pod was told to end for another one.
func restarts(pod *corev1.Pod) bool {
	return pod != nil && pod.Annotations[wellknown.RestartAnnotation] != ""
}

// updated is the condition Updated of a Server that is in no Fleet.
func updated(s *v1alpha1.Server, o Observed) metav1.Condition {
	const kind = conditions.Updated
	switch {
	case restarts(o.Pod):
		return condition.False(kind, reasons.Updating, "The Pod is of an earlier spec and ends for one of this spec.")
	case outdated(s, o.Pod):
		return condition.False(kind, reasons.Updating, "The Pod is of an earlier spec: it is replaced when its players have left.")
	case o.Pod == nil:
		return condition.True(kind, reasons.Updated, "The next Pod is of the spec.")
	default:
		return condition.True(kind, reasons.Updated, "The Pod is of the spec.")
	}
}
