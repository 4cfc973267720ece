package gameserver

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/operator/internal/hostports"
	"dormouse.dev/dormouse/operator/internal/requeue"
)

// How long the next Pod waits after failures: the first is replaced at once, the next after
// five seconds, and each further one after twice as long.
const (
	firstDelay = 5 * time.Second
	lastDelay  = 5 * time.Minute
	// wellAfter is how long a Server must have been ready for its earlier failures to be
	// forgotten.
	wellAfter = 10 * time.Minute
)

// plan is what a pass does to a Server's Pod. At most one of the actions is set.
type plan struct {
	// create creates a Pod, if there are host ports for it.
	create bool
	// remove deletes the Pod, with its grace period.
	remove bool
	// erase deletes the Pod's object at once, because nothing of it runs, as far as is known.
	erase bool
	// restart tells the Pod's game that it is to end for a Pod of the changed spec.
	restart bool
	// refused is set where the Pod is erased because its host ports are free on no node.
	refused bool
	// release lets the deleted Server go.
	release bool
	// retire deletes the Server, for this reason; empty: it doesn't.
	retire string
	// failed counts a failure.
	failed bool
	// forced is set where the Pod goes though its players are there.
	forced bool
	// guard is why the Pod may or may not go.
	guard permission
	// restoreKey is the ID of the key whose Secret is to be made again; empty: none is missing.
	restoreKey string
	// restoreCode is set where the Secret with the game's code may be missing.
	restoreCode bool
	// changed is set where the spec has changed since a pass wrote the status. A new Server's
	// has not: its Pod is made from it.
	changed bool
	// turn is set where the pass has its Server's turn.
	turn bool
	// waits is how long a Server that wants a Pod and has none waits for it.
	waits        time.Duration
	requeueAfter requeue.After
}

// makePlan decides what becomes of a Server's Pod.
//
// A Server that is being deleted or stopped keeps its Pod until that may go, see mayGo. A
// Server that is to run gets a Pod, later the more often it failed. A Pod that has ended is
// deleted and replaced, and so is one that is unhealthy and empty, unless something else looks
// after the Server. One of an earlier spec ends for another one once nobody plays there.
func makePlan(now time.Time, s *v1alpha1.Server, o observed) plan {
	var p plan
	p.guard = mayGo(now, s, o)
	p.changed = s.Status.ObservedGeneration != s.Generation && (s.Status.ObservedGeneration != 0 || s.Generation > 1)
	p.requeueAfter.AtMost(p.guard.requeueAfter)
	_, left := o.nodeLost(now)
	p.requeueAfter.AtMost(left)
	wait := untilNextPod(now, s)
	switch {
	case o.stranger:
		// A Server whose Pod's name is taken has no Pod of its own to wait for.
		p.release = !s.DeletionTimestamp.IsZero()
	case !wanted(s), restarts(o.pod) && !ended(o.pod):
		planEnd(now, s, o, &p)
	case o.pod == nil && s.Spec.Drain && !inFleet(s):
		p.retire = "The Server was drained, and no game runs."
	case o.pod == nil && o.made:
		p.requeueAfter.AtMost(cacheLag)
	case o.pod == nil && wait > 0:
		p.waits = wait
		p.requeueAfter.AtMost(wait)
	case o.pod == nil:
		p.create = true
	default:
		planRun(now, s, o, &p)
	}
	return p
}

// planEnd plans for a Server that is to have no Pod.
func planEnd(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	switch {
	case o.pod == nil:
		p.release = !s.DeletionTimestamp.IsZero()
	case p.guard.gone:
		if left := removal(now, o); left > 0 {
			p.requeueAfter.AtMost(left)
		} else {
			p.erase = true
		}
	case !p.guard.allowed:
	case o.pod.DeletionTimestamp.IsZero():
		p.remove, p.forced = true, p.guard.forced
	default:
		_, left := graceOver(o.pod, now)
		p.requeueAfter.AtMost(left)
	}
}

// removalTime is how long a deleted Pod's object may be there after the Pod ended.
const removalTime = 5 * time.Second

// removal is how long the node of a deleted Pod that has ended still has to remove its object, which
// it does by itself; 0 or less: no longer.
func removal(now time.Time, o observed) time.Duration {
	if o.pod.DeletionTimestamp.IsZero() || o.node == nil {
		return 0
	}
	if lost, _ := o.nodeLost(now); lost {
		return 0
	}
	var ended time.Time // when its last container did
	for _, c := range o.pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(ended) {
			ended = t.FinishedAt.Time
		}
	}
	if end := o.pod.DeletionTimestamp.Time; ended.IsZero() || ended.After(end) {
		ended = end // of its grace period
	}
	return ended.Add(removalTime).Sub(now)
}

// untilNextPod is how long a Server's next Pod waits because of earlier failures; 0 or less
// where it needn't.
func untilNextPod(now time.Time, s *v1alpha1.Server) time.Duration {
	if s.Status.LastFailureTime == nil {
		return 0
	}
	return s.Status.LastFailureTime.Add(delayAfter(s.Status.Failures)).Sub(now)
}

// delayAfter is how long the next Pod waits after so many failures.
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

// planRun plans for a Server that has a Pod and wants one.
func planRun(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	game := gamepod.Report(s, o.pod)
	lost, _ := o.nodeLost(now)
	over, left := graceOver(o.pod, now)
	p.restoreKey, p.restoreCode = lacksKey(o.pod), lacksCode(s, o.pod)
	if p.restoreKey != "" || p.restoreCode {
		p.requeueAfter.AtMost(restoreRetry)
	}
	switch {
	case game != nil && game.State == v1alpha1.GameShutdown && o.pod.DeletionTimestamp.IsZero() && (game.ShutdownSeen || restarts(o.pod)):
		// It ends because it was told to, and is wanted again.
		p.remove = true
	case game != nil && game.State == v1alpha1.GameShutdown && o.pod.DeletionTimestamp.IsZero():
		p.retire = "The game asked for its own end."
	case s.Spec.Drain && p.guard.empty && !inFleet(s):
		p.retire = "The Server was drained, and nobody is there any more."
	case ended(o.pod):
		p.failed, p.erase = o.pod.DeletionTimestamp.IsZero(), true
	case over && lost && len(s.Spec.Storage) == 0:
		// Its kubelet will not report that any more. A disk may still be written to there, and
		// only the cluster's owner can know that it isn't.
		p.erase = true
	case !o.pod.DeletionTimestamp.IsZero():
		p.requeueAfter.AtMost(left) // somebody deleted it, and it is ending
	case game != nil && game.State == v1alpha1.GameUnhealthy && !inFleet(s) && p.guard.empty:
		p.failed, p.remove = true, true
	case outdated(s, o.pod) && p.guard.empty && gameRunning(s, o.pod):
		p.restart = true
	case outdated(s, o.pod) && p.guard.empty:
		p.remove = true
	default:
		planPorts(now, s, o, p)
	}
}

// planPorts replaces a Pod in two cases: its picked host port has become a UDP port of an
// ElasticService, and its network isn't set up yet; or it has no node because of its host port,
// and another number is better.
func planPorts(now time.Time, s *v1alpha1.Server, o observed, p *plan) {
	if o.clashes && o.pod.Status.PodIP == "" {
		p.erase, p.remove = !scheduled(o.pod), scheduled(o.pod)
		return
	}
	why, since := unschedulable(o.pod)
	if !hostports.Awaited(why) || !hostports.Picks(s) {
		return
	}
	left := o.patience - now.Sub(since)
	inVain := left <= 0 && !strings.Contains(why, "Insufficient") // otherwise it may wait because of that
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
func mayGo(now time.Time, s *v1alpha1.Server, o observed) permission {
	p := whoPlays(s, o)
	if p.gone {
		p.allowed = true
		return p
	}
	lost, _ := o.nodeLost(now)
	if lost {
		over, left := graceOver(o.pod, now)
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
	if wanted(s) && !restarts(o.pod) {
		p.allowed = p.empty
		return p
	}
	seen := gamepod.Report(s, o.pod) != nil && s.Status.Game.ShutdownSeen
	asked, timeout := s.DeletionTimestamp, durationOf(s.Spec.Deletion.Timeout)
	alone := leftAlone(now, o.pod)
	switch {
	case !gameRunning(s, o.pod):
		p.allowed = true
	case p.empty && (seen || o.lookAllows) && alone == 0:
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
	case p.empty && alone > 0 && !podstatus.Ready(o.pod):
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

// leftAlone is how long new players may still be sent to a Pod that was told to shut down; 0
// when that is over. A Pod that is still ready is looked at when that changes.
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

// whoPlays is the permission for a Server's Pod by who plays, as far as is known.
func whoPlays(s *v1alpha1.Server, o observed) permission {
	yes := func(reason, message string) permission {
		return permission{empty: true, reason: reason, message: message}
	}
	no := func(reason, message string) permission { return permission{reason: reason, message: message} }
	switch game := gamepod.Report(s, o.pod); {
	case o.pod == nil, ended(o.pod):
		p := yes(reasons.NotRunning, "No game runs.")
		p.gone = true
		return p
	case !gameRunning(s, o.pod):
		return yes(reasons.NotRunning, "No game runs.")
	case game == nil && s.Spec.Deletion.Unreported == v1alpha1.DeletionDenied:
		return no(reasons.NotReported, "The game has said nothing of itself, and deletion.unreported is Denied.")
	case game == nil:
		return yes(reasons.NotReported, "The game has said nothing of itself.")
	case o.held(game) && o.holder.Name != "":
		return no(reasons.Allocated, "Allocation "+o.holder.Name+" has the Server.")
	case o.held(game):
		return no(reasons.Allocated, "Allocations have places on the Server.")
	case s.Status.DeletionAllowed && game.Permission == v1alpha1.DeletionAllowed:
		return yes(reasons.GameAllows, "The game allows it.")
	case s.Status.DeletionAllowed && !game.Reported:
		return yes(reasons.NotReported, "The game has said nothing of itself.")
	case s.Status.DeletionAllowed:
		return yes(reasons.NoPlayers, "Nobody plays.")
	case game.Permission == v1alpha1.DeletionDenied:
		return no(reasons.GameDenies, "The game doesn't allow it.")
	case game.State == v1alpha1.GameAllocated, game.State == v1alpha1.GameReserved:
		return no(reasons.Allocated, "The game is "+string(game.State)+".")
	case s.Status.Players != nil && s.Status.Players.Current > 0:
		return no(reasons.Players, people(s.Status.Players.Current))
	default:
		return no(reasons.NotReported, "The game has said nothing of itself, and deletion.unreported is Denied.")
	}
}

// failuresAfter is the count after another failure: 1 if the Server was well for a time before.
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
