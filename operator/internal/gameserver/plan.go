package gameserver

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
)

// How long the next Pod waits after Pods that failed: the first comes at once,
// the next after five seconds, each one after that after twice as long.
const (
	firstDelay = 5 * time.Second
	lastDelay  = 5 * time.Minute
	// wellAfter is how long a Server must have been ready for its earlier
	// failures to be forgotten.
	wellAfter = 10 * time.Minute
)

// plan is what a pass does to a Server's Pod. At most one of the actions is set.
type plan struct {
	// create makes a Pod, if there are host ports for it.
	create bool
	// remove deletes the Pod, and gives it its grace period.
	remove bool
	// erase deletes the Pod's object at once: nothing of it runs, as far as
	// anybody can tell.
	erase bool
	// refused says that the Pod is erased because its host ports were free on no node.
	refused bool
	// release lets the deleted Server go.
	release bool
	// retire deletes the Server, and says why; empty: it doesn't.
	retire string
	// failed counts a failure.
	failed bool
	// forced says that the Pod goes though its players are there.
	forced bool
	// guard is why the Pod may or may not go.
	guard permission
	// waits says, for a Server that has no Pod and wants one, until when.
	waits        time.Duration
	requeueAfter requeue.After
}

// makePlan decides what becomes of a Server's Pod.
//
// A Server that is being deleted or stopped keeps its Pod until it may go, see
// mayGo. One that is to run gets a Pod, later the more often it failed; a Pod
// that ended is taken away and replaced, and so is one that is unhealthy, empty
// and nobody else's to look after.
func makePlan(now time.Time, s *v1alpha1.Server, o observed) plan {
	var p plan
	p.guard = mayGo(now, s, o)
	p.requeueAfter.AtMost(p.guard.requeueAfter)
	_, left := o.nodeLost(now)
	p.requeueAfter.AtMost(left)
	switch {
	case o.stranger:
		// A Server whose Pod's place is taken has none of its own to wait for.
		p.release = !s.DeletionTimestamp.IsZero()
	case !wanted(s):
		planEnd(now, s, o, &p)
	case o.pod == nil && s.Spec.Drain && !inFleet(s):
		p.retire = "The Server was drained, and no game runs."
	case o.pod == nil:
		planPod(now, s, o, &p)
	default:
		planRun(now, s, o, &p)
	}
	return p
}

// planEnd is for a Server that is to have no Pod.
func planEnd(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	switch {
	case o.pod == nil:
		p.release = !s.DeletionTimestamp.IsZero()
	case p.guard.gone:
		p.erase = true
	case !p.guard.allowed:
	case o.pod.DeletionTimestamp.IsZero():
		p.remove, p.forced = true, p.guard.forced
	default:
		_, left := graceOver(o.pod, now)
		p.requeueAfter.AtMost(left)
	}
}

// planPod is for a Server that has no Pod and wants one.
func planPod(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	if o.made {
		p.requeueAfter.AtMost(cacheLag)
		return
	}
	if last := s.Status.LastFailureTime; last != nil {
		if left := last.Add(delayAfter(s.Status.Failures)).Sub(now); left > 0 {
			p.waits = left
			p.requeueAfter.AtMost(left)
			return
		}
	}
	p.create = true
}

// delayAfter is how long the next Pod waits after that many failures.
func delayAfter(failures int32) time.Duration {
	if failures <= 1 {
		return 0
	}
	delay := firstDelay
	for i := int32(2); i < failures && delay < lastDelay; i++ {
		delay *= 2
	}
	return min(delay, lastDelay)
}

// planRun is for a Server that has a Pod and wants one.
func planRun(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	game := report(s, o.pod)
	lost, _ := o.nodeLost(now)
	over, left := graceOver(o.pod, now)
	switch {
	case game != nil && game.State == v1alpha1.GameShutdown:
		p.retire = "The game asked for its own end."
	case s.Spec.Drain && p.guard.empty && !inFleet(s):
		p.retire = "The Server was drained, and nobody is there any more."
	case ended(o.pod):
		p.failed, p.erase = o.pod.DeletionTimestamp.IsZero(), true
	case over && lost && len(s.Spec.Storage) == 0:
		// Its kubelet will not say so any more. A disk may still be written
		// there, and only the cluster's owner can know that it isn't.
		p.erase = true
	case !o.pod.DeletionTimestamp.IsZero():
		p.requeueAfter.AtMost(left) // somebody deleted it, and it ends
	case game != nil && game.State == v1alpha1.GameUnhealthy && !inFleet(s) && p.guard.empty:
		p.failed, p.remove = true, true
	default:
		planPorts(now, s, o, p)
	}
}

// retryPort is how long a Pod waits for a host port that nobody of ours has too
// many of before another one is tried, the first time: a Pod that isn't ours may have it.
const retryPort = 30 * time.Second

// planPorts replaces a Pod in two cases: its picked host port has become a UDP port of an
// ElasticService, and its network isn't set up yet; or it has no node for want of its
// host port, and another number is better.
func planPorts(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	if o.clashes && o.pod.Status.PodIP == "" {
		p.erase, p.remove = !scheduled(o.pod), scheduled(o.pod)
		return
	}
	why, since := unschedulable(o.pod)
	if !wantsPort(why) || !picksPorts(s) {
		return
	}
	left := o.patience - now.Sub(since)
	inVain := left <= 0 && !strings.Contains(why, "Insufficient") // or it may be for want of that
	if inVain && o.betterInVain || !inVain && o.better {
		p.erase, p.refused = true, inVain
		return
	}
	if left <= 0 {
		left = o.patience
	}
	p.requeueAfter.AtMost(left)
}

// permission is whether a Server's Pod may go.
type permission struct {
	// allowed says that it may be told to end.
	allowed bool
	// empty says that nobody plays, as far as is known: the Pod may be evicted.
	empty bool
	// gone says that nothing of it runs.
	gone bool
	// forced says that it goes though its players are there.
	forced bool
	// reason and message are those of the condition DeletionAllowed.
	reason, message string
	// requeueAfter is after how long the answer may change by itself.
	requeueAfter time.Duration
}

// mayGo decides whether a Server's Pod may go. Gone is what ended, or what was
// told to end and whose node has been silent for too long. What runs may go when
// its sidecar has said so after it was told of the deletion, so that a player
// who comes in that moment is seen; or when its owner forces it.
func mayGo(now time.Time, s *v1alpha1.Server, o observed) permission {
	p := whoPlays(s, o)
	if p.gone {
		p.allowed = true
		return p
	}
	lost, _ := o.nodeLost(now)
	if lost {
		over, left := graceOver(o.pod, now)
		if over {
			return permission{
				allowed: true, empty: true, gone: true,
				reason: v1alpha1.ReasonNodeLost, message: "The Pod's node doesn't answer, and the Pod's time to end is over.",
			}
		}
		p.requeueAfter = left
	}
	if wanted(s) {
		p.allowed = p.empty
		return p
	}
	seen := report(s, o.pod) != nil && s.Status.Game.ShutdownSeen
	asked, timeout := s.DeletionTimestamp, durationOf(s.Spec.Deletion.Timeout)
	switch {
	case !gameRunning(s, o.pod):
		p.allowed = true
	case p.empty && seen:
		// Whoever was sent there before its endpoint went is there by then.
		if p.requeueAfter = leftAlone(now, o.pod); p.requeueAfter == 0 {
			p.allowed = true
		} else {
			p.reason, p.message = v1alpha1.ReasonWaitingForSidecar, "Nobody plays; until its endpoints are known to be gone somebody may come."
		}
	case s.Spec.Deletion.Force:
		p.allowed, p.forced = true, true
	case lost:
		// So that its time to end begins, as Kubernetes' own eviction from such a
		// node does. Should the node come back, the Pod ends.
		p.allowed = true
	case timeout > 0 && asked != nil && !now.Before(asked.Add(timeout)):
		p.allowed, p.forced = true, true
	case p.empty:
		p.reason, p.message = v1alpha1.ReasonWaitingForSidecar, "The game's sidecar hasn't answered to the deletion yet."
	}
	if !p.allowed && timeout > 0 && asked != nil {
		if left := asked.Add(timeout).Sub(now); p.requeueAfter == 0 || left < p.requeueAfter {
			p.requeueAfter = left
		}
	}
	return p
}

// withdrawn is how long after a Pod has become unready nobody is sent there any
// more: two of kube-proxy's sync periods.
const withdrawn = 2 * time.Second

// leftAlone is for how long new players may still be sent to a Pod that was told to
// shut down; 0 when that is over. One that is still ready is looked at when that
// changes.
func leftAlone(now time.Time, pod *corev1.Pod) time.Duration {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue {
				return withdrawn
			}
			return max(c.LastTransitionTime.Add(withdrawn).Sub(now), 0)
		}
	}
	return 0
}

// whoPlays says whether a Server's Pod is empty, as far as is known.
func whoPlays(s *v1alpha1.Server, o observed) permission {
	yes := func(reason, message string) permission {
		return permission{empty: true, reason: reason, message: message}
	}
	no := func(reason, message string) permission { return permission{reason: reason, message: message} }
	switch game := report(s, o.pod); {
	case o.pod == nil, ended(o.pod):
		p := yes(v1alpha1.ReasonNotRunning, "No game runs.")
		p.gone = true
		return p
	case !gameRunning(s, o.pod):
		return yes(v1alpha1.ReasonNotRunning, "No game runs.")
	case game == nil && s.Spec.Deletion.Unreported == v1alpha1.DeletionDenied:
		return no(v1alpha1.ReasonNotReported, "The game has said nothing of itself, and deletion.unreported is Denied.")
	case game == nil:
		return yes(v1alpha1.ReasonNotReported, "The game has said nothing of itself.")
	case s.Status.DeletionAllowed && game.Permission == v1alpha1.DeletionAllowed:
		return yes(v1alpha1.ReasonGameAllows, "The game allows it.")
	case s.Status.DeletionAllowed && !game.Reported:
		return yes(v1alpha1.ReasonNotReported, "The game has said nothing of itself.")
	case s.Status.DeletionAllowed:
		return yes(v1alpha1.ReasonNoPlayers, "Nobody plays.")
	case game.Permission == v1alpha1.DeletionDenied:
		return no(v1alpha1.ReasonGameDenies, "The game doesn't allow it.")
	case game.State == v1alpha1.GameAllocated, game.State == v1alpha1.GameReserved:
		return no(v1alpha1.ReasonAllocated, "The game is "+string(game.State)+".")
	case s.Status.Players != nil && s.Status.Players.Current > 0:
		return no(v1alpha1.ReasonPlayers, people(s.Status.Players.Current))
	default:
		return no(v1alpha1.ReasonNotReported, "The game has said nothing of itself, and deletion.unreported is Denied.")
	}
}

// failuresAfter counts a failure more, or the first one after a time in which
// all was well.
func failuresAfter(now time.Time, s *v1alpha1.Server, readySince *metav1.Time) int32 {
	if readySince != nil && now.Sub(readySince.Time) >= wellAfter {
		return 1
	}
	return min(s.Status.Failures, 1<<20) + 1
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}
