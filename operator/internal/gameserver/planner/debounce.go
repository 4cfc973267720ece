package planner

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// What a Server that starts may leave unwritten, and for how long: that the scheduler hasn't seen
// its Pod yet, as it does in order and has others before it; that no node can take it; that it
// starts; and then what changes with each step of the Pod. Meanwhile a player may wait for the
// Pod, for which the API server and the node have better things to do.
const (
	putOffUnseen   = 10 * time.Second
	putOffPending  = 3 * time.Second
	putOffFirst    = 3 * time.Second
	putOffStarting = 10 * time.Second
)

// putOffEnding is for how long the status of a deleted Server stays as it was, on which nobody
// plays: usually it is gone by then.
const putOffEnding = 10 * time.Second

// Debounce is how long the result of a pass may stay unwritten; 0: it is to be written now. What
// the pass did, and a spec that was changed, is always to be written.
func Debounce(now time.Time, before, after *v1alpha1.Server, o Observed, p Plan) time.Duration {
	deleted := !after.DeletionTimestamp.IsZero()
	// A deletion changes the generation, too.
	if p.Failed || p.Forced || p.Retire != "" || p.Changed && !deleted {
		return 0
	}
	if deleted {
		if !p.guard.empty || !before.Status.DeletionAllowed {
			return 0
		}
		return leftOf(now, *after.DeletionTimestamp, putOffEnding)
	}
	state := before.Status.State
	switch ready := condition.ReasonOf(after.Status.Conditions, conditions.Ready); {
	case state == "" && after.Status.State == v1alpha1.ServerPending && ready == reasons.Pending:
		if why, _ := unschedulable(orEmpty(o.Pod)); why != "" {
			return leftOf(now, before.CreationTimestamp, putOffPending)
		}
		return leftOf(now, before.CreationTimestamp, putOffUnseen)
	case after.Status.State != v1alpha1.ServerStarting || o.Pod == nil:
		return 0
	case state == "" && ready == reasons.Starting && !tellsAddress(before):
		return leftOf(now, o.Pod.CreationTimestamp, putOffFirst)
	case state == v1alpha1.ServerStarting && sameForPeople(before.Status.Conditions, after.Status.Conditions):
		return leftOf(now, o.Pod.CreationTimestamp, putOffStarting)
	}
	return 0
}

// tellsAddress reports whether a Server's status tells its game, while that starts, at which
// address it is reached.
func tellsAddress(s *v1alpha1.Server) bool {
	return s.Spec.Readiness == v1alpha1.ServerReadinessSDK || slices.ContainsFunc(s.Spec.Ports, hostports.Exposed)
}

// leftOf is what is left of a time that began by the API server's clock; nothing, where that is
// ahead of this one.
func leftOf(now time.Time, began metav1.Time, whole time.Duration) time.Duration {
	age := now.Sub(began.Time)
	if age < 0 {
		return 0
	}
	return max(0, whole-age)
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
