package gameserver

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// What a Server that comes up may keep to itself, and for how long: that its Pod has
// no node yet, and what changes with every step that the Pod makes then.
const (
	putOffPending  = 3 * time.Second
	putOffStarting = 10 * time.Second
)

// putOffFor is for how long what a pass has found out needn't be written: a new
// Server's being Pending, and what changes on one that starts and goes on to start.
func putOffFor(now time.Time, before, after *v1alpha1.Server, o observed) time.Duration {
	switch {
	case before.Status.State == "" && after.Status.State == v1alpha1.ServerPending && readyOf(after).reason == v1alpha1.ReasonPending:
		return before.CreationTimestamp.Add(putOffPending).Sub(now)
	case before.Status.State == v1alpha1.ServerStarting && after.Status.State == v1alpha1.ServerStarting && o.pod != nil &&
		sameForPeople(before.Status.Conditions, after.Status.Conditions):
		return o.pod.CreationTimestamp.Add(putOffStarting).Sub(now)
	default:
		return 0
	}
}

// sameForPeople reports whether two states of a Server's conditions tell a person the
// same: why it isn't ready, and whether it may be deleted.
func sameForPeople(a, b []metav1.Condition) bool {
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionDeletionAllowed} {
		before, after := meta.FindStatusCondition(a, kind), meta.FindStatusCondition(b, kind)
		if before == nil || after == nil || before.Status != after.Status || kind == v1alpha1.ConditionReady && before.Reason != after.Reason {
			return false
		}
	}
	return true
}
