package gameserver

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// What a Server that starts may leave unwritten, and for how long: that its Pod has no node
// yet, and then what changes with each step of the Pod.
const (
	putOffPending  = 3 * time.Second
	putOffStarting = 10 * time.Second
)

// putOffFor is how long the result of a pass may stay unwritten: that a new Server is Pending,
// and what changes on one that goes on starting.
func putOffFor(now time.Time, before, after *v1alpha1.Server, o observed) time.Duration {
	switch {
	case before.Status.State == "" && after.Status.State == v1alpha1.ServerPending && readyOf(after).reason == reasons.Pending:
		return before.CreationTimestamp.Add(putOffPending).Sub(now)
	case before.Status.State == v1alpha1.ServerStarting && after.Status.State == v1alpha1.ServerStarting && o.pod != nil &&
		sameForPeople(before.Status.Conditions, after.Status.Conditions):
		return o.pod.CreationTimestamp.Add(putOffStarting).Sub(now)
	default:
		return 0
	}
}

// sameForPeople reports whether two states of a Server's conditions mean the same to a person:
// why it isn't ready, and whether it may be deleted.
func sameForPeople(a, b []metav1.Condition) bool {
	for _, kind := range []string{conditions.Ready, conditions.DeletionAllowed} {
		before, after := meta.FindStatusCondition(a, kind), meta.FindStatusCondition(b, kind)
		if before == nil || after == nil || before.Status != after.Status || kind == conditions.Ready && before.Reason != after.Reason {
			return false
		}
	}
	return true
}
