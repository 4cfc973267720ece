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
	"errors"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/awake"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/target"
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
	// Accepting reports whether servers get new clients past the resolvers.
	Accepting bool
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

// decision is a plan in the making, and what it is a function of.
type decision struct {
	Plan
	now   time.Time
	es    *v1alpha1.ElasticService
	is    spec.Settings
	o     *Observed
	found *Findings
	// clients are those of all resolvers.
	clients clients
	// kept is what keeps the service awake for the longest; zero: nothing does.
	kept idleness.KeptAwake
	// deleting reports whether the ElasticService is being deleted.
	deleting bool
}

// Make decides phase, mode and endpoints. The phase follows the target's state. Only the step
// from Awake to FallingAsleep and on to Asleep is Dormouse's own decision.
func Make(now time.Time, es *v1alpha1.ElasticService, o Observed, f Findings) Plan {
	d := decision{
		Plan: Plan{Phase: es.Status.Phase}, now: now, es: es, is: o.Is, o: &o, found: &f,
		clients: sumClients(now, o.Resolvers, o.Is.Handoff), kept: o.KeptAwake, deleting: !es.DeletionTimestamp.IsZero(),
	}
	d.Sessions, d.Queued = d.clients.sessions, d.clients.queued
	d.clients.lastActive = times.Latest(d.clients.lastActive, o.LastActive)
	if !d.deleting {
		d.Awake = awake.Decide(now, es)
		if o.Group != nil {
			d.Group = wakegroup.Decide(now, es, *o.Group)
		}
		if !d.Awake.Asleep.IsZero() {
			d.Group.By, d.Group.Wakes = "", false
		}
		switch {
		case d.Group.By != "":
			d.kept = d.GroupKeepsAwake()
		case d.Awake.Until.After(o.KeptAwake.Until):
			d.kept = d.byWindow()
		}
	}
	switch {
	case o.Scale.Err == nil:
		d.decidePhase()
	case errors.Is(o.Scale.Err, target.ErrNotFound):
		d.decideWithoutTarget()
	}
	if d.Phase == v1alpha1.PhaseAsleep || d.Phase == v1alpha1.PhaseWaking {
		d.WaitsFor = d.Group.WaitsFor
	}
	roles := d.decideRoles()
	if es.Status.Front != nil {
		d.awaitFront()
	}
	if d.deleting {
		d.decideDeletion()
	}

	// What was observed may change though no object does, and the status has how many clients wait.
	var lasts, queued, waking time.Duration
	if d.Phase == es.Status.Phase {
		lasts = now.Sub(d.is.PhaseSince)
	}
	if d.Queued > 0 {
		queued = min(max(lasts/10, minQueuedPeriod), maxQueuedPeriod)
	}
	if d.Phase == v1alpha1.PhaseWaking && lasts < wakeTime {
		waking = wakePeriod
	}
	d.RequeueAfter.AtMost(
		d.Awake.Next.Sub(now), d.Group.Next.Sub(now), d.Idle.RequeueAfter, idleness.UntilKept(now, d.is.SleepAfter, d.Idle),
		roles, o.StrangersNext, queued, waking,
	)
	for _, next := range []time.Time{o.Lists.Next, o.Leftovers.Next} {
		if !next.IsZero() {
			d.RequeueAfter.AtMost(max(next.Sub(now), time.Millisecond))
		}
	}
	return d.Plan
}

// decideWithoutTarget decides the phase of a service whose target isn't there any more: somebody may replace
// it, and who comes meanwhile waits for it at the resolver, which sends nobody away for three seconds.
func (d *decision) decideWithoutTarget() {
	was := d.Phase == v1alpha1.PhaseAwake || d.Phase == v1alpha1.PhaseFallingAsleep
	switch left := d.blipLeft(); {
	case was && left > 0:
		d.RequeueAfter.AtMost(left)
	case was && d.o.Up == 0:
		d.Phase = v1alpha1.PhaseWaking
	case d.Phase == v1alpha1.PhaseWaking && d.o.Up > 0:
		d.Phase = v1alpha1.PhaseAwake // somebody else's pods have the Service's labels
	}
}

// blipLeft is for how long the servers of an awake service that are all unready may still come back by
// themselves; 0: they may not, or one is up.
func (d *decision) blipLeft() time.Duration {
	if d.o.Up > 0 || !d.is.Awake || !endpoints.AnyRunning(d.o.Servers) {
		return 0
	}
	return max(d.o.NoneUpSince.Add(blip).Sub(d.now), 0)
}

// decidePhase decides the phase of a service whose target's scale is known.
func (d *decision) decidePhase() {
	now, es, o, previous := d.now, d.es, d.o, d.es.Status.Phase
	if !o.Unsettled.Next.IsZero() {
		d.RequeueAfter.AtMost(max(o.Unsettled.Next.Sub(now), time.Millisecond))
	}
	switch {
	case o.Scale.Replicas == 0:
		d.Phase = v1alpha1.PhaseAsleep
		d.Raise = d.Awake.Wakes(es) || d.Group.Wakes
		return
	case d.blipLeft() > 0:
		d.Phase = v1alpha1.PhaseAwake
		d.RequeueAfter.AtMost(d.blipLeft())
		return
	case o.Up == 0:
		d.Phase = v1alpha1.PhaseWaking
		d.decideGivingUp()
		return
	case !d.is.Awake && d.clients.queued > 0 && d.takesNobodyYet():
		d.Phase = v1alpha1.PhaseWaking
		d.RequeueAfter.AtMost(untilAskedAgain(now.Sub(o.UpSince)))
		return
	case (previous == v1alpha1.PhaseAsleep || previous == v1alpha1.PhaseWaking) && len(d.Group.WaitsFor) > 0:
		d.Phase = v1alpha1.PhaseWaking // what it needs isn't up
		return
	}

	d.Phase = v1alpha1.PhaseAwake
	awakeSince := now
	switch previous {
	case v1alpha1.PhaseAwake:
		awakeSince = d.is.PhaseSince
	case v1alpha1.PhaseFallingAsleep:
		awakeSince = time.Time{}
	case v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking:
	}
	d.Idle = idleness.Decide(now, idleness.Signals{
		SleepAfter:  d.is.SleepAfter,
		Handoff:     d.is.Handoff,
		AwakeSince:  awakeSince,
		LastWake:    d.is.LastWake,
		ClientsErr:  d.clients.err,
		Sessions:    d.clients.active,
		Queued:      d.clients.queued,
		LastActive:  d.clients.lastActive,
		Watched:     d.clients.watched,
		UnblockedAt: o.UnblockedAt,
		IdleSince:   d.is.IdleSince,
		HasTriggers: d.is.HasTriggers,
		Triggers:    o.Triggers,
		HasPlayers:  d.is.HasPlayers,
		Players:     o.Players,
		Allocated:   o.Allocated,
		KeptAwake:   d.kept,
	})
	d.Idle.Used = d.Idle.Used || d.o.Blocked != nil
	switch {
	case d.deleting || !d.Idle.Sleep || d.mayNotSleep():
	case previous == v1alpha1.PhaseFallingAsleep:
		d.decideCommit()
	case endpoints.AnyEligible(es.Status.Ports, o.Resolvers):
		// The slices are written before the phase: see the package's comment.
		d.Phase = v1alpha1.PhaseFallingAsleep
		d.RequeueAfter.AtMost(d.settleTime())
	}
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

// decideCommit keeps a service falling asleep until the resolvers stand in for it on all nodes,
// and then commits.
func (d *decision) decideCommit() {
	es, o := d.es, d.o
	if o.SleepBegun == nil || !d.is.LastWake.Equal(*o.SleepBegun) || !endpoints.AnyEligible(es.Status.Ports, o.Resolvers) {
		return // awake: a client came or might have, or no resolver could take one
	}
	d.Phase = v1alpha1.PhaseFallingAsleep
	settled := d.is.PhaseSince.Add(d.settleTime())
	if left := settled.Sub(d.now); left > 0 {
		d.RequeueAfter.AtMost(left)
		return
	}
	if !o.Autoscaler.Rests() {
		// Its pause has been asked for since the sleep began.
		d.RequeueAfter.AtMost(200 * time.Millisecond)
		return
	}
	if d.is.HasTriggers && !o.Nobody && o.Triggers.At.Before(settled) {
		// A client that came before kube-proxy applied the endpoints went to a server past the
		// resolver: only a trigger that was asked since then finds it.
		d.RequeueAfter.AtMost(200 * time.Millisecond)
		return
	}
	// A resolver that terminates may still take clients.
	for _, r := range o.Resolvers {
		takes := r.Ready || r.Reachable && (r.Role != endpoints.RoleNone || es.Status.Front != nil)
		if takes && r.Phase != string(v1alpha1.PhaseFallingAsleep) {
			d.RequeueAfter.AtMost(100 * time.Millisecond)
			return
		}
	}
	d.Commit = true
}

// settleTime is how long FallingAsleep lasts at least. With handoff Never no endpoint changes,
// so there is nothing for kube-proxy to apply.
func (d *decision) settleTime() time.Duration {
	if d.is.Handoff == v1alpha1.HandoffNever {
		return 100 * time.Millisecond
	}
	return settle
}
