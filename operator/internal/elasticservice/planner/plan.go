// Package planner decides about an ElasticService: its phase, which endpoints get new clients,
// and when its target is scaled. It is a function of what a pass observed and found out, and of
// the time.
//
// The phase follows the state of the target. A service falls asleep in two steps, each a pass of
// its own:
//
//  1. Idle for long enough and with a resolver that listens, it is FallingAsleep. The
//     resolver's endpoints are written before that phase is.
//  2. After kube-proxy had its time, and once every resolver knows of the phase, the sleep is
//     committed. A wake that was stamped since, or a client at a resolver, cancels it.
//
// A service that wakes stays behind the resolver until a server takes new clients. A resolver
// that steps down keeps its endpoint, without new clients, while it has some.
//
// The package imports no client and logs nothing: everything worth reporting is in the plan.
package planner

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/awake"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/times"
)

const (
	// settle is how long kube-proxy has to apply the resolver's endpoints before the target
	// goes to zero: two of its sync periods of a second, and as much again for a busy node. One
	// was seen to take over four seconds.
	settle = 5 * time.Second
	// blip is how long servers that exist may all be unready before the resolver
	// steps in.
	blip = 5 * time.Second
	// DeletionPatience is how long a deletion waits for the target to be awake
	// and for the resolvers' clients to leave.
	DeletionPatience = 5 * time.Minute
)

// Plan is the desired state after a pass.
type Plan struct {
	Phase v1alpha1.Phase
	Mode  v1alpha1.Mode
	// Roles are the resolvers' roles, by their pods' UIDs.
	Roles map[string]endpoints.Role
	// Stay are the resolvers that may stay ready in a family that lags.
	Stay map[string]bool
	// Commit reports whether the sleep is to be committed and the target scaled to zero.
	Commit bool
	// Raise reports whether the target is to be scaled up, because the ElasticService is being
	// deleted, or something keeps the service awake.
	Raise bool
	// Awake is what keeps the service awake by the spec or an annotation, and Group is for which
	// other services it waits, and which of them keep it awake.
	Awake awake.Verdict
	Group wakegroup.Verdict
	// WaitsFor are the names of those for which it waits.
	WaitsFor []string
	// Release reports whether the ElasticService's deletion may go on.
	Release      bool
	Idle         idleness.Verdict
	Sessions     int32
	Queued       int32
	RequeueAfter requeue.After
}

const (
	// minQueuedPeriod and maxQueuedPeriod bound how often the resolvers are asked while clients
	// wait, so that the status has their number: less often the longer it takes. At the
	// beginning of a wake, whose clients they may not have reported yet, it is wakePeriod, for
	// wakeTime.
	minQueuedPeriod, maxQueuedPeriod = time.Second, 5 * time.Second
	wakePeriod, wakeTime             = 500 * time.Millisecond, 5 * time.Second
)

// Make decides phase, mode and endpoints. The phase follows the target's state. Only the step
// from Awake to FallingAsleep and on to Asleep is Dormouse's own decision.
func Make(now time.Time, es *v1alpha1.ElasticService, o Observed, f Findings) Plan {
	p := Plan{Phase: es.Status.Phase}
	clients := sumClients(now, o.Resolvers, spec.Handoff(es))
	p.Sessions, p.Queued = clients.sessions, clients.queued

	deleting := !es.DeletionTimestamp.IsZero()
	if !deleting {
		p.Awake, p.Group = awake.Decide(now, es), wakegroup.Decide(now, es, o.Group)
		if !p.Awake.Asleep.IsZero() {
			p.Group.By, p.Group.Wakes = "", false
		}
		for _, next := range []time.Time{p.Awake.Next, p.Group.Next} {
			if !next.IsZero() {
				p.RequeueAfter.AtMost(next.Sub(now))
			}
		}
	}
	if o.Scale.Err == nil {
		p.planPhase(now, es, o, f, clients, deleting)
	}
	if p.Phase == v1alpha1.PhaseAsleep || p.Phase == v1alpha1.PhaseWaking {
		p.WaitsFor = p.Group.WaitsFor
	}
	p.planRoles(now, es, o)
	p.awaitFront(now, es, o)
	p.RequeueAfter.AtMost(o.StrangersNext)
	var lasts time.Duration
	if p.Phase == es.Status.Phase {
		lasts = now.Sub(spec.PhaseSince(es))
	}
	if p.Queued > 0 {
		p.RequeueAfter.AtMost(min(max(lasts/10, minQueuedPeriod), maxQueuedPeriod))
	}
	if p.Phase == v1alpha1.PhaseWaking && lasts < wakeTime {
		p.RequeueAfter.AtMost(wakePeriod)
	}
	for _, next := range []time.Time{o.Lists.Next, o.Leftovers.Next} {
		if !next.IsZero() {
			p.RequeueAfter.AtMost(max(next.Sub(now), time.Millisecond))
		}
	}
	if deleting {
		p.planDeletion(now, es, o, f)
	}
	return p
}

// planPhase decides the phase of a service whose target's scale is known.
func (p *Plan) planPhase(now time.Time, es *v1alpha1.ElasticService, o Observed, f Findings, clients clients, deleting bool) {
	up := endpoints.CountUp(o.Servers)
	previous := es.Status.Phase
	if !o.Unsettled.Next.IsZero() {
		p.RequeueAfter.AtMost(max(o.Unsettled.Next.Sub(now), time.Millisecond))
	}
	switch {
	case o.Scale.Replicas == 0:
		p.Phase = v1alpha1.PhaseAsleep
		p.Raise = p.Awake.Wakes(es) || p.Group.Wakes
		return
	case up == 0 && spec.IsAwake(previous) && endpoints.AnyRunning(o.Servers) && now.Sub(o.NoneUpSince) < blip:
		p.Phase = v1alpha1.PhaseAwake
		p.RequeueAfter.AtMost(o.NoneUpSince.Add(blip).Sub(now))
		return
	case up == 0:
		p.Phase = v1alpha1.PhaseWaking
		p.planGivingUp(now, es, o, f, clients, deleting)
		return
	case !spec.IsAwake(previous) && o.takesNobodyYet(now, es, clients):
		p.Phase = v1alpha1.PhaseWaking
		p.RequeueAfter.AtMost(untilAskedAgain(now.Sub(o.UpSince)))
		return
	case (previous == v1alpha1.PhaseAsleep || previous == v1alpha1.PhaseWaking) && len(p.Group.WaitsFor) > 0:
		p.Phase = v1alpha1.PhaseWaking // what it needs isn't up
		return
	}

	p.Phase = v1alpha1.PhaseAwake
	awakeSince := spec.PhaseSince(es)
	if previous == v1alpha1.PhaseFallingAsleep {
		awakeSince = time.Time{}
	} else if previous != v1alpha1.PhaseAwake {
		awakeSince = now
	}
	p.Idle = idleness.Decide(now, idleness.Signals{
		SleepAfter:  spec.SleepAfter(es),
		Handoff:     spec.Handoff(es),
		AwakeSince:  times.Latest(awakeSince, times.Micro(es.Status.LastWakeTime)),
		ClientsErr:  clients.err,
		Sessions:    clients.sessions,
		Queued:      clients.queued,
		LastActive:  clients.lastActive,
		Watched:     times.Latest(clients.watched, o.UnblockedAt),
		IdleSince:   spec.KeptSince(es),
		HasTriggers: spec.HasTriggers(es),
		Triggers:    o.Triggers,
		HasPlayers:  spec.HasPlayers(es),
		Players:     o.Players,
		Allocated:   o.Allocated,
		KeptAwake:   p.keptAwake(o),
	})
	p.Idle.Used = p.Idle.Used || Blocked(es, o) != nil
	p.RequeueAfter.AtMost(p.Idle.RequeueAfter)
	p.RequeueAfter.AtMost(idleness.UntilKept(now, es, p.Idle))
	switch {
	case deleting || !p.Idle.Sleep || mayNotSleep(es, o, f):
	case previous == v1alpha1.PhaseFallingAsleep:
		p.planCommit(now, es, o)
	case endpoints.AnyEligible(es.Status.Ports, o.Resolvers):
		// The slices are written before the phase: see the package's comment.
		p.Phase = v1alpha1.PhaseFallingAsleep
		p.RequeueAfter.AtMost(settleTime(es))
	}
}

// keptAwake is what keeps the service awake for the longest.
func (p *Plan) keptAwake(o Observed) idleness.KeptAwake {
	switch {
	case p.Group.By != "":
		return p.GroupKeepsAwake()
	case p.Awake.Until.After(o.KeptAwake.Until):
		return p.byWindow()
	}
	return o.KeptAwake
}

// GroupKeepsAwake is the other ElasticService that keeps the service awake; zero: none does.
func (p *Plan) GroupKeepsAwake() idleness.KeptAwake {
	return idleness.KeptAwake{By: p.Group.By, Open: p.Group.By != ""}
}

func (p *Plan) byWindow() idleness.KeptAwake {
	return idleness.KeptAwake{Until: p.Awake.Until, By: p.Awake.By}
}

// KeptAwake is what keeps the service awake by the spec, an annotation or another ElasticService, or
// wakes it; zero: nothing does, or somebody has scaled it to zero. What has an end comes first: it
// says more.
func (p *Plan) KeptAwake(es *v1alpha1.ElasticService) idleness.KeptAwake {
	asleep := p.Phase == v1alpha1.PhaseAsleep
	switch {
	case asleep && !p.Raise:
		return idleness.KeptAwake{}
	case p.Awake.Until.IsZero(), asleep && !p.Awake.Wakes(es):
		return p.GroupKeepsAwake()
	}
	return p.byWindow()
}

// planCommit keeps a service falling asleep until the resolvers stand in for it on all nodes,
// and then commits.
func (p *Plan) planCommit(now time.Time, es *v1alpha1.ElasticService, o Observed) {
	since := spec.PhaseSince(es)
	if o.SleepBegun == nil || !times.Micro(es.Status.LastWakeTime).Equal(*o.SleepBegun) || !endpoints.AnyEligible(es.Status.Ports, o.Resolvers) {
		return // awake: a client came or might have, or no resolver could take one
	}
	p.Phase = v1alpha1.PhaseFallingAsleep
	if left := since.Add(settleTime(es)).Sub(now); left > 0 {
		p.RequeueAfter.AtMost(left)
		return
	}
	if !o.Autoscaler.Rests() {
		// Its pause has been asked for since the sleep began.
		p.RequeueAfter.AtMost(200 * time.Millisecond)
		return
	}
	if spec.HasTriggers(es) && !o.Nobody && o.Triggers.At.Before(since.Add(settleTime(es))) {
		// A client that came before kube-proxy applied the endpoints went to a server past the
		// resolver: only a trigger that was asked since then finds it.
		p.RequeueAfter.AtMost(200 * time.Millisecond)
		return
	}
	// A resolver that terminates may still take clients.
	current := endpoints.CurrentRoles(o.Slices)
	for _, r := range o.Resolvers {
		takes := r.Ready || r.Reachable && (current[r.UID] != endpoints.RoleNone || es.Status.Front != nil)
		if takes && r.Phase != string(v1alpha1.PhaseFallingAsleep) {
			p.RequeueAfter.AtMost(100 * time.Millisecond)
			return
		}
	}
	p.Commit = true
}

// settleTime is how long FallingAsleep lasts at least. With handoff Never no endpoint changes,
// so there is nothing for kube-proxy to apply.
func settleTime(es *v1alpha1.ElasticService) time.Duration {
	if spec.Handoff(es) == v1alpha1.HandoffNever {
		return 100 * time.Millisecond
	}
	return settle
}
