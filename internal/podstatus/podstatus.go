// Package podstatus reads a Pod's conditions.
package podstatus

import corev1 "k8s.io/api/core/v1"

// Condition is a Pod's condition of a kind; nil if it has none.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Is reports whether a Pod's condition of a kind is True.
func Is(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	c := Condition(pod, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Ready reports whether a Pod is ready.
func Ready(pod *corev1.Pod) bool { return Is(pod, corev1.PodReady) }
