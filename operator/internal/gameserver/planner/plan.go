// Package planner decides what becomes of a Server's Pod, and what the Server's status says of it. It
// is a function of the time, of the Server and of what a pass observed around it.
//
// A plan has one action at most: a Pod is made, told to end, deleted, or its Server goes. Only
// permission.go says whether a Pod may go, by who plays. A plan only has that a Pod is wanted: which
// host ports it gets is picked while the plan is applied.
//
// The package imports no client and logs nothing: everything worth reporting is in the plan and in the
// status.
package planner

import (
	"strings"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
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
	// mostFailures bounds their count.
	mostFailures = 1 << 20
)

// CacheLag is how long something that was just created is assumed to exist though the cache doesn't
// show it.
const CacheLag = 10 * time.Second

// Plan is what a pass does to a Server's Pod. At most one of the actions is set.
type Plan struct {
	// Create creates a Pod, if there are host ports for it.
	Create bool
	// Remove deletes the Pod, with its grace period.
	Remove bool
	// Erase deletes the Pod's object at once, because nothing of it runs, as far as is known.
	Erase bool
	// Restart tells the Pod's game that it is to end for a Pod of the changed spec.
	Restart bool
	// Refused is set where the Pod is erased because its host ports are free on no node.
	Refused bool
	// Release lets the deleted Server go.
	Release bool
	// Retire deletes the Server, for this reason; empty: it doesn't.
	Retire string
	// Failed counts a failure.
	Failed bool
	// Forced is set where the Pod goes though its players are there.
	Forced bool
	// guard is why the Pod may or may not go.
	guard permission
	// Evictable is set where the Pod may be evicted: nobody plays, as far as is known.
	Evictable bool
	// LookFirst is set where the Pod may go once its sidecar has said so again.
	LookFirst bool
	// RestoreKey is the ID of the key whose Secret is to be made again; empty: none is missing.
	RestoreKey string
	// RestoreCode is set where the Secret with the game's code may be missing.
	RestoreCode bool
	// Changed is set where the spec has changed since a pass wrote the status. A new Server's
	// has not: its Pod is made from it.
	Changed bool
	// waits is how long a Server that wants a Pod and has none waits for it.
	waits time.Duration
	// RequeueAfter is after how long to look again though nothing changes.
	RequeueAfter requeue.After
}

// DeletionMessage is the message of the condition DeletionAllowed.
func (p Plan) DeletionMessage() string { return p.guard.message }

// Make decides what becomes of a Server's Pod.
//
// A Server that is being deleted or stopped keeps its Pod until that may go, see mayGo. A
// Server that is to run gets a Pod, later the more often it failed. A Pod that has ended is
// deleted and replaced, and so is one that is unhealthy and empty, unless something else looks
// after the Server. One of an earlier spec ends for another one once nobody plays there.
func Make(now time.Time, s *v1alpha1.Server, o Observed) Plan {
	guard := mayGo(now, s, o)
	p := Plan{guard: guard, Evictable: guard.empty, LookFirst: guard.lookFirst}
	p.Changed = s.Status.ObservedGeneration != s.Generation && (s.Status.ObservedGeneration != 0 || s.Generation > 1)
	switch {
	case o.Stranger:
		// A Server whose Pod's name is taken has no Pod of its own to wait for.
		p.Release = !s.DeletionTimestamp.IsZero()
		return p
	case o.Pod == nil:
		planFirst(now, s, o, &p)
		return p
	}
	p.RequeueAfter.AtMost(guard.requeueAfter)
	_, left := o.nodeLost(now)
	p.RequeueAfter.AtMost(left)
	if !Wanted(s) || restarts(o.Pod) && !Ended(o.Pod) {
		planEnd(now, o, &p)
	} else {
		planRun(now, s, o, &p)
	}
	return p
}

// planFirst plans for a Server that has no Pod.
func planFirst(now time.Time, s *v1alpha1.Server, o Observed, p *Plan) {
	switch {
	case !Wanted(s):
		p.Release = !s.DeletionTimestamp.IsZero()
		return
	case s.Spec.Drain && !InFleet(s):
		p.Retire = "The Server was drained, and no game runs."
		return
	case o.Made:
		p.RequeueAfter.AtMost(CacheLag)
		return
	}
	// Earlier failures delay it.
	if last := s.Status.LastFailureTime; last != nil {
		delay := delayAfter(s.Status.Failures)
		if p.waits = max(0, last.Add(delay).Sub(now)); p.waits > delay {
			p.waits = 0 // an earlier leader's clock was ahead
		}
		p.RequeueAfter.AtMost(p.waits)
	}
	p.Create = p.waits == 0
}

// planEnd plans for a Pod that is to end.
func planEnd(now time.Time, o Observed, p *Plan) {
	switch {
	case p.guard.gone:
		if left := removal(now, o); left > 0 {
			p.RequeueAfter.AtMost(left)
		} else {
			p.Erase = true
		}
	case !p.guard.allowed:
	case o.Pod.DeletionTimestamp.IsZero():
		p.Remove, p.Forced = true, p.guard.forced
	default:
		_, left := graceOver(o.Pod, now)
		p.RequeueAfter.AtMost(left)
	}
}

// removalTime is how long a deleted Pod's object may be there after the Pod ended.
const removalTime = 5 * time.Second

// removal is how long the node of a deleted Pod that has ended still has to remove its object, which
// it does by itself; 0 or less: no longer.
func removal(now time.Time, o Observed) time.Duration {
	if o.Pod.DeletionTimestamp.IsZero() || o.Node == nil {
		return 0
	}
	if lost, _ := o.nodeLost(now); lost {
		return 0
	}
	var ended time.Time // when its last container did
	for _, c := range o.Pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(ended) {
			ended = t.FinishedAt.Time
		}
	}
	if end := o.Pod.DeletionTimestamp.Time; ended.IsZero() || ended.After(end) {
		ended = end // of its grace period
	}
	return ended.Add(removalTime).Sub(now)
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
func planRun(now time.Time, s *v1alpha1.Server, o Observed, p *Plan) {
	game := gamepod.Report(s, o.Pod)
	lost, _ := o.nodeLost(now)
	over, left := graceOver(o.Pod, now)
	p.RestoreKey, p.RestoreCode = lacksKey(o.Pod), lacksCode(s, o.Pod)
	if p.RestoreKey != "" || p.RestoreCode {
		p.RequeueAfter.AtMost(restoreRetry)
	}
	switch {
	case game != nil && game.State == v1alpha1.GameShutdown && o.Pod.DeletionTimestamp.IsZero() && (game.ShutdownSeen || restarts(o.Pod)):
		// It ends because it was told to, and is wanted again.
		p.Remove = true
	case game != nil && game.State == v1alpha1.GameShutdown && o.Pod.DeletionTimestamp.IsZero():
		p.Retire = "The game asked for its own end."
	case s.Spec.Drain && p.guard.empty && !InFleet(s):
		p.Retire = "The Server was drained, and nobody is there any more."
	case Ended(o.Pod):
		p.Failed, p.Erase = o.Pod.DeletionTimestamp.IsZero(), true
	case over && lost && len(s.Spec.Storage) == 0:
		// Its kubelet will not report that any more. A disk may still be written to there, and
		// only the cluster's owner can know that it isn't.
		p.Erase = true
	case !o.Pod.DeletionTimestamp.IsZero():
		p.RequeueAfter.AtMost(left) // somebody deleted it, and it is ending
	case game != nil && game.State == v1alpha1.GameUnhealthy && !InFleet(s) && p.guard.empty:
		p.Failed, p.Remove = true, true
	case outdated(s, o.Pod) && p.guard.empty && GameRunning(s, o.Pod):
		p.Restart = true
	case outdated(s, o.Pod) && p.guard.empty:
		p.Remove = true
	default:
		planPorts(now, s, o, p)
	}
}

// planPorts replaces a Pod in two cases: its picked host port has become a UDP port of an
// ElasticService, and its network isn't set up yet; or it has no node because of its host port,
// and another number is better.
func planPorts(now time.Time, s *v1alpha1.Server, o Observed, p *Plan) {
	if o.Clashes && o.Pod.Status.PodIP == "" {
		p.Erase, p.Remove = !scheduled(o.Pod), scheduled(o.Pod)
		return
	}
	why, since := unschedulable(o.Pod)
	if !hostports.Awaited(why) || !hostports.Picks(s) {
		return
	}
	left := o.Patience - now.Sub(since)
	inVain := left <= 0 && !strings.Contains(why, "Insufficient") // otherwise it may wait because of that
	if inVain && o.BetterInVain || !inVain && o.Better {
		p.Erase, p.Refused = true, inVain
		return
	}
	if left <= 0 {
		left = o.Patience
	}
	p.RequeueAfter.AtMost(left)
}
