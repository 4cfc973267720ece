package planner

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/podstatus"
)

// permission is whether a Server's Pod may go.
type permission struct {
	// allowed is set where it may be told to end.
	allowed bool
	// empty is set where nobody plays, as far as is known: the Pod may be evicted.
	empty bool
	// gone is set where nothing of it runs.
	gone bool
	// forced is set where it goes though its players are there.
	forced bool
	// lookFirst is set where it may go once its sidecar has said so again.
	lookFirst bool
	// reason and message are those of the condition DeletionAllowed.
	reason, message string
	// requeueAfter is after how long that may change by itself.
	requeueAfter time.Duration
}

// mayGo decides whether a Server's Pod may go. A Pod is gone that has ended, or that was told
// to end and whose node has been silent for too long. A running one may go once its sidecar has
// reported that after it was told of the deletion, so that a player who joins at that moment
// counts; or when its owner forces it.
func mayGo(now time.Time, s *v1alpha1.Server, o Observed) permission {
	if o.Pod == nil || Ended(o.Pod) {
		return permission{allowed: true, empty: true, gone: true, reason: reasons.NotRunning, message: "No game runs."}
	}
	p := whoPlays(s, o)
	lost, _ := o.nodeLost(now)
	if lost {
		over, left := graceOver(o.Pod, now)
		if over && len(s.Spec.Storage) > 0 {
			// Only the cluster's owner can know that nothing writes to the disk any more. The Pod
			// is removed with its Node, or once that has the taint.
			p.allowed = true
			p.reason, p.message = reasons.NodeLost, "The Pod's node doesn't answer, and the Pod may still write to its disk there. It goes when the node is back, or when you delete the Node or taint it with node.kubernetes.io/out-of-service."
			return p
		}
		if over {
			return permission{
				allowed: true, empty: true, gone: true,
				reason: reasons.NodeLost, message: "The Pod's node doesn't answer, and the Pod's time to end is over.",
			}
		}
		p.requeueAfter = left
	}
	if Wanted(s) && !restarts(o.Pod) {
		p.allowed = p.empty
		return p
	}
	seen := gamepod.Report(s, o.Pod) != nil && s.Status.Game.ShutdownSeen
	asked, timeout := s.DeletionTimestamp, durationOf(s.Spec.Deletion.Timeout)
	alone := leftAlone(now, o.Pod)
	switch {
	case !GameRunning(s, o.Pod):
		p.allowed = true
	case p.empty && (seen || o.LookAllows) && alone == 0:
		p.allowed = true
	case p.empty && seen:
		p.waitAlone(alone)
	case s.Spec.Deletion.Force:
		p.allowed, p.forced = true, true
	case lost:
		// Its grace period begins, as with Kubernetes' own eviction from such a node. Should
		// the node come back, the Pod ends.
		p.allowed = true
	case timeout > 0 && asked != nil && !now.Before(asked.Add(timeout)):
		p.allowed, p.forced = true, true
	case p.empty && alone > 0 && !podstatus.Ready(o.Pod):
		p.waitAlone(alone)
	case p.empty:
		p.lookFirst = alone == 0
		p.requeueAfter = alone
		p.reason, p.message = reasons.WaitingForSidecar, "The game's sidecar hasn't answered to the deletion yet."
	}
	if !p.allowed && timeout > 0 && asked != nil {
		if left := asked.Add(timeout).Sub(now); p.requeueAfter == 0 || left < p.requeueAfter {
			p.requeueAfter = left
		}
	}
	return p
}

// waitAlone has a Pod wait that nobody plays on: players who were sent there before its endpoint
// was removed have arrived by then.
func (p *permission) waitAlone(left time.Duration) {
	p.requeueAfter = left
	p.reason, p.message = reasons.WaitingForSidecar, "Nobody plays; until its endpoints are known to be gone somebody may come."
}

// withdrawn is how long after a Pod became unready new players may still be sent there: two of
// kube-proxy's sync periods.
const withdrawn = 2 * time.Second

// mostSkew is how far ahead of the operator's clock a node's may be for its times to count.
const mostSkew = 10 * time.Second

// leftAlone is how long new players may still be sent to a Pod that was told to shut down; 0
// when that is over. A Pod that is still ready is looked at when that changes.
func leftAlone(now time.Time, pod *corev1.Pod) time.Duration {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue {
				return withdrawn
			}
			left := c.LastTransitionTime.Add(withdrawn).Sub(now)
			if left > withdrawn+mostSkew {
				return 0 // by the node's clock, which says nothing
			}
			return max(left, 0)
		}
	}
	return 0
}

// whoPlays is the permission for a Server's Pod by who plays, as far as is known.
func whoPlays(s *v1alpha1.Server, o Observed) permission {
	yes := func(reason, message string) permission {
		return permission{empty: true, reason: reason, message: message}
	}
	no := func(reason, message string) permission { return permission{reason: reason, message: message} }
	switch game := gamepod.Report(s, o.Pod); {
	case !GameRunning(s, o.Pod):
		return yes(reasons.NotRunning, "No game runs.")
	case o.held(game) && o.Holder.Name != "":
		return no(reasons.Allocated, "Allocation "+o.Holder.Name+" has the Server.")
	case o.held(game):
		return no(reasons.Allocated, "Allocations have places on the Server.")
	case saysNothing(s, game) && s.Spec.Deletion.Unreported == v1alpha1.DeletionDenied:
		return no(reasons.NotReported, "The game has said nothing of itself, and deletion.unreported is Denied.")
	case saysNothing(s, game):
		return yes(reasons.NotReported, "The game has said nothing of itself.")
	case s.Status.DeletionAllowed && game.Permission == v1alpha1.DeletionAllowed:
		return yes(reasons.GameAllows, "The game allows it.")
	case s.Status.DeletionAllowed:
		return yes(reasons.NoPlayers, "Nobody plays.")
	case game.Permission == v1alpha1.DeletionDenied:
		return no(reasons.GameDenies, "The game doesn't allow it.")
	case game.State == v1alpha1.GameAllocated, game.State == v1alpha1.GameReserved:
		return no(reasons.Allocated, "The game is "+string(game.State)+".")
	case s.Status.Players != nil && s.Status.Players.Current > 0:
		return no(reasons.Players, people(s.Status.Players.Current))
	default:
		return no(reasons.Players, "The game's sidecar isn't sure that nobody plays.")
	}
}

// saysNothing reports whether the spec decides, because the game has said nothing of itself. What the sidecar was
// started with may be an earlier spec's. Of one that is broken it knows whether anybody can be playing.
func saysNothing(s *v1alpha1.Server, game *v1alpha1.GameStatus) bool {
	if game == nil {
		return true
	}
	if game.State == v1alpha1.GameUnhealthy && s.Status.DeletionAllowed {
		return false
	}
	somebody := s.Status.Players != nil && s.Status.Players.Current > 0
	return !game.Reported && !somebody && game.State != v1alpha1.GameAllocated && game.State != v1alpha1.GameReserved
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

func people(n int32) string {
	if n == 1 {
		return "1 player is there."
	}
	return fmt.Sprintf("%d players are there.", n)
}
