package planner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// Observed is what a pass sees of a Server's surroundings.
type Observed struct {
	// Pod is the Server's own; nil if there is none.
	Pod *corev1.Pod
	// Made is set where a Pod was created which the cache doesn't show yet.
	Made bool
	// Stranger is set where a Pod that isn't the Server's has its name.
	Stranger bool
	// Orphan is such a Pod if an earlier Server of the same name left it.
	Orphan *corev1.Pod
	// LookAllows is set where the Pod's sidecar, which knows of the end, has just replied that the
	// Server may be deleted.
	LookAllows bool
	// Events are the Pod's, where only they may tell why it doesn't start.
	Events []corev1.Event
	// Node is the Pod's; nil if it has none, or the node doesn't exist any more.
	Node *corev1.Node
	// NodeMissingSince is since when a node that doesn't exist was missed.
	NodeMissingSince time.Time
	// NodeLostAfter is how long a node may be silent before its Pods count as gone.
	NodeLostAfter time.Duration
	// Holder is which Allocations have the Server; of one without a Pod it isn't asked.
	Holder book.Holder
	// UsualBoot is how long the game usually takes from its start until it is Ready; 0: not known, or there
	// is no Pod.
	UsualBoot time.Duration
	// Clashes is set where one of the Pod's picked host ports has become a UDP port of an
	// ElasticService, and there are other numbers.
	Clashes bool
	// Better is set where a host port other than the Pod's is free on more nodes, and
	// BetterInVain where one is free on as many, once the Pod has waited in vain. Both are
	// known only for a Pod that waits for its host port.
	Better, BetterInVain bool
	// Patience is after how long a Pod that waits for its host port has waited in vain.
	Patience time.Duration
}

// GameRunning reports whether the game's process runs in a Pod. kubelet's report may be late: a
// running sidecar to which the game has said something knows better.
func GameRunning(s *v1alpha1.Server, pod *corev1.Pod) bool {
	if pod == nil || gamepod.Running(s, pod) {
		return pod != nil
	}
	game := gamepod.Report(s, pod)
	return game != nil && game.Reported && !s.Status.DeletionAllowed && gamepod.SidecarRunning(pod)
}

func scheduled(pod *corev1.Pod) bool { return pod != nil && pod.Spec.NodeName != "" }

// Ended reports whether all of a Pod's containers have, for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// AwaitsHostPort reports whether a Pod has no node because no node has its host ports free.
func AwaitsHostPort(pod *corev1.Pod) bool {
	why, _ := unschedulable(orEmpty(pod))
	return hostports.Awaited(why)
}

func orEmpty(pod *corev1.Pod) *corev1.Pod { return new(ptr.Deref(pod, corev1.Pod{})) }

// unschedulable is the scheduler's message on why a Pod has no node, and since when.
func unschedulable(pod *corev1.Pod) (string, time.Time) {
	if scheduled(pod) {
		return "", time.Time{}
	}
	if c := podstatus.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return c.Message, c.LastTransitionTime.Time
	}
	return "", time.Time{}
}

// silentSince is since when a Pod's node hasn't answered; zero while it does. A node whose
// kubelet itself reports that it isn't ready does answer.
func (o Observed) silentSince() (time.Time, bool) {
	if !scheduled(o.Pod) {
		return time.Time{}, false
	}
	if o.Node == nil {
		return o.NodeMissingSince, true
	}
	for _, c := range o.Node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// nodeLost reports whether the Pod's node counts as lost, and otherwise after how long it will.
func (o Observed) nodeLost(now time.Time) (lost bool, left time.Duration) {
	since, silent := o.silentSince()
	if !silent {
		return false, 0
	}
	if left = since.Add(o.NodeLostAfter).Sub(now); left > 0 {
		return false, left
	}
	return true, 0
}

// graceOver reports whether a deleted Pod's grace period is over, by the time that the API
// server has set, and otherwise after how long it will be.
func graceOver(pod *corev1.Pod, now time.Time) (over bool, left time.Duration) {
	if pod.DeletionTimestamp.IsZero() {
		return false, 0
	}
	// The API server's deletionTimestamp is the end of the grace period.
	if left = pod.DeletionTimestamp.Sub(now); left > 0 {
		return false, left
	}
	return true, 0
}

// held reports whether an Allocation has the Server whose game has reported so. A game that is broken
// or asks for its own end goes with its players alone: the Allocation learns that it is gone.
func (o Observed) held(game *v1alpha1.GameStatus) bool {
	return o.Holder.Any() && game != nil && game.State != v1alpha1.GameShutdown && game.State != v1alpha1.GameUnhealthy
}

// InFleet reports whether the Server has a controller that looks after it.
func InFleet(s *v1alpha1.Server) bool { return metav1.GetControllerOf(s) != nil }

// Wanted reports whether the Server is to have a Pod.
func Wanted(s *v1alpha1.Server) bool {
	return s.DeletionTimestamp.IsZero() && s.Spec.Runs()
}

// Ending reports whether a Server's Pod is to end as soon as it may.
func Ending(s *v1alpha1.Server, pod *corev1.Pod) bool {
	return !Wanted(s) || restarts(pod)
}
