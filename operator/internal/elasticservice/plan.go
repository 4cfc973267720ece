package elasticservice

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

const (
	// settle is how long kube-proxy is given to take in the resolver's endpoints
	// before the target goes to zero: two of its sync periods of a second, and
	// as much again for a busy node, where one was seen to take over four.
	settle = 5 * time.Second
	// blip is how long servers that exist may all be unready before the resolver
	// steps in.
	blip = 5 * time.Second
	// linger is how long a resolver's endpoint stays after its last client.
	linger = 10 * time.Second
	// lostAfter is when a silent resolver counts as carrying nobody.
	lostAfter = 5 * time.Minute
	// deletionPatience is how long a deletion waits for the target to be awake
	// and for the resolvers' clients to leave.
	deletionPatience = 5 * time.Minute
)

// role is what a resolver pod's endpoint is in the Service's slices.
type role int

const (
	// roleNone means no endpoint.
	roleNone role = iota
	// roleReady means that it gets new clients.
	roleReady
	// roleTerminating means that it keeps the clients it has.
	roleTerminating
)

// plan is what should be so after a pass.
type plan struct {
	phase v1alpha1.Phase
	mode  v1alpha1.Mode
	// roles are by the resolver pod's UID.
	roles map[string]role
	// stay are the resolvers that may stay ready in a family that is behind.
	stay map[string]bool
	// commit says that the sleep is to be committed and the target scaled to zero.
	commit bool
	// raise says that the target is to be scaled up, because the ElasticService
	// is being deleted.
	raise bool
	// release says that the ElasticService's deletion may go on.
	release  bool
	idle     verdict
	sessions int32
	queued   int32
	// requeue is when to look again though nothing that is watched changed; 0
	// for never.
	requeue time.Duration
}

const (
	// minQueuedPeriod and maxQueuedPeriod are how often the resolvers are asked while
	// clients wait, so that the status tells how many: less often the longer it takes. At
	// the beginning of a wake, whose clients they may not have told of yet, it is
	// wakePeriod, for wakeTime.
	minQueuedPeriod, maxQueuedPeriod = time.Second, 5 * time.Second
	wakePeriod, wakeTime             = 500 * time.Millisecond, 5 * time.Second
)

// makePlan decides phase, mode and endpoints. The phase follows what the target
// is; only the step from Awake to FallingAsleep and on to Asleep is our own wish.
func makePlan(now time.Time, es *v1alpha1.ElasticService, o observed) plan {
	p := plan{phase: es.Status.Phase}
	clients := sumClients(now, o.resolvers, handoff(es))
	p.sessions, p.queued = clients.sessions, clients.queued

	deleting := !es.DeletionTimestamp.IsZero()
	if o.scale.err == nil {
		p.planPhase(now, es, o, clients, deleting)
	}
	p.planRoles(now, es, o)
	p.awaitFront(now, es, o)
	p.again(o.strangersNext)
	var lasts time.Duration
	if p.phase == es.Status.Phase {
		lasts = now.Sub(phaseSince(es))
	}
	if p.queued > 0 {
		p.again(min(max(lasts/10, minQueuedPeriod), maxQueuedPeriod))
	}
	if p.phase == v1alpha1.PhaseWaking && lasts < wakeTime {
		p.again(wakePeriod)
	}
	for _, next := range []time.Time{o.lists.next, o.leftovers.again} {
		if !next.IsZero() {
			p.again(max(next.Sub(now), time.Millisecond))
		}
	}
	if deleting {
		p.planDeletion(now, es, o)
	}
	return p
}

func (p *plan) planPhase(now time.Time, es *v1alpha1.ElasticService, o observed, clients clients, deleting bool) {
	up := countUp(o.servers)
	previous := es.Status.Phase
	if !o.unsettled.next.IsZero() {
		p.again(max(o.unsettled.next.Sub(now), time.Millisecond))
	}
	switch {
	case o.scale.replicas == 0:
		p.phase = v1alpha1.PhaseAsleep
		return
	case up == 0 && isAwake(previous) && anyRunning(o.servers) && now.Sub(o.noneUpSince) < blip:
		p.phase = v1alpha1.PhaseAwake
		p.again(o.noneUpSince.Add(blip).Sub(now))
		return
	case up == 0:
		p.phase = v1alpha1.PhaseWaking
		p.planGivingUp(now, es, o, clients, deleting)
		return
	case !isAwake(previous) && o.takesNobodyYet(now, es, clients):
		p.phase = v1alpha1.PhaseWaking
		p.again(askAgain(now.Sub(o.upSince)))
		return
	}

	p.phase = v1alpha1.PhaseAwake
	awakeSince := phaseSince(es)
	if previous == v1alpha1.PhaseFallingAsleep {
		awakeSince = time.Time{}
	} else if previous != v1alpha1.PhaseAwake {
		awakeSince = now
	}
	p.idle = decide(now, idleness{
		sleepAfter:  sleepAfter(es),
		handoff:     handoff(es),
		awakeSince:  latest(awakeSince, microTime(es.Status.LastWakeTime)),
		clientsErr:  clients.err,
		sessions:    clients.sessions,
		queued:      clients.queued,
		lastActive:  clients.lastActive,
		watched:     latest(clients.watched, o.unblockedAt),
		idleSince:   keptSince(es),
		hasTriggers: hasTriggers(es),
		triggers:    o.triggers,
		hasPlayers:  hasPlayers(es),
		players:     o.players,
	})
	p.idle.used = p.idle.used || blocked(es, o) != nil
	p.again(p.idle.again)
	p.again(untilKept(now, es, p.idle))
	switch {
	case deleting || !p.idle.sleep || o.mayNotSleep(es):
	case previous == v1alpha1.PhaseFallingAsleep:
		p.planCommit(now, es, o)
	case anyEligible(es, o.resolvers):
		// The slices are written before the phase: see the package's comment.
		p.phase = v1alpha1.PhaseFallingAsleep
		p.again(settleTime(es))
	}
}

// planGivingUp has a service fall asleep whose servers don't come up, once nobody waits
// for them any more and nobody can be on one.
func (p *plan) planGivingUp(now time.Time, es *v1alpha1.ElasticService, o observed, clients clients, deleting bool) {
	told := handoff(es) == v1alpha1.HandoffNever || hasTriggers(es) || hasPlayers(es)
	if deleting || !o.nobody || !told || o.mayNotSleep(es) || sleepAfter(es) == 0 || clients.err != nil || clients.sessions > 0 || clients.queued > 0 {
		return
	}
	since := latest(o.noneLastingSince, clients.lastActive, clients.watched, microTime(es.Status.LastWakeTime), microTime(es.Status.LastSleepTime))
	if left := since.Add(sleepAfter(es)).Sub(now); left > 0 {
		p.again(left)
		return
	}
	p.idle = verdict{sleep: true, reason: fmt.Sprintf("No server comes up, and nobody has waited for one for %s.", sleepAfter(es))}
	switch {
	case es.Status.Phase == v1alpha1.PhaseFallingAsleep:
		p.planCommit(now, es, o)
	case anyEligible(es, o.resolvers):
		p.phase = v1alpha1.PhaseFallingAsleep
		p.again(settleTime(es))
	}
}

// planCommit keeps a service falling asleep until the resolvers stand in for it
// for all to see, and then commits.
func (p *plan) planCommit(now time.Time, es *v1alpha1.ElasticService, o observed) {
	since := phaseSince(es)
	if o.sleepBegun == nil || !microTime(es.Status.LastWakeTime).Equal(*o.sleepBegun) || !anyEligible(es, o.resolvers) {
		return // awake: a client came or might have, or nobody could receive one
	}
	p.phase = v1alpha1.PhaseFallingAsleep
	if left := since.Add(settleTime(es)).Sub(now); left > 0 {
		p.again(left)
		return
	}
	if hasTriggers(es) && !o.nobody && o.triggers.At.Before(since.Add(settleTime(es))) {
		// A client that came before kube-proxy knew better went straight to a
		// server: only a trigger that was asked since tells of it.
		p.again(200 * time.Millisecond)
		return
	}
	// One that is going may take clients still.
	current := currentRoles(o.slices)
	for _, r := range o.resolvers {
		takes := r.ready || r.reachable && (current[r.uid] != roleNone || es.Status.Front != nil)
		if takes && r.phase != string(v1alpha1.PhaseFallingAsleep) {
			p.again(100 * time.Millisecond)
			return
		}
	}
	p.commit = true
}

func (p *plan) planRoles(now time.Time, es *v1alpha1.ElasticService, o observed) {
	p.mode = v1alpha1.ModeServe
	standIn := p.phase != v1alpha1.PhaseAwake || handoff(es) == v1alpha1.HandoffNever
	if p.phase == "" && countUp(o.servers) > 0 {
		// The target was never found, and its Service works without us.
		standIn = false
	}
	if standIn {
		p.mode = v1alpha1.ModeProxy
	}
	p.planStandIns(now, es.Status.Ports, o, standIn)
	if left := familyLag - now.Sub(phaseSince(es)); !standIn && (es.Status.Phase != v1alpha1.PhaseAwake || left > 0) {
		p.planStay(es, o, left)
	}
}

// planStay decides who may stay ready in a family that is behind.
func (p *plan) planStay(es *v1alpha1.ElasticService, o observed, left time.Duration) {
	if o.service == nil || !slices.ContainsFunc(o.service.Spec.IPFamilies, func(f corev1.IPFamily) bool { return behind(discoveryv1.AddressType(f), o) }) {
		return
	}
	p.stay = map[string]bool{}
	for _, r := range o.resolvers {
		if r.ready && r.reachable && r.listensOn(es.Status.Ports) {
			p.stay[r.uid] = true
		}
	}
	p.again(left)
}

// planStandIns decides what each resolver's endpoint is.
func (p *plan) planStandIns(now time.Time, ports []v1alpha1.PortStatus, o observed, standIn bool) {
	current := currentRoles(o.slices)
	p.roles = map[string]role{}
	for _, r := range o.resolvers {
		was := current[r.uid]
		p.again(untilItListens(ports, r, standIn))
		switch {
		case standIn && r.ready && (r.listensOn(ports) || !r.reachable && was == roleReady):
			p.roles[r.uid] = roleReady
		case was == roleNone:
		case !r.reachable:
			if now.Sub(r.silentSince) < lostAfter {
				p.roles[r.uid] = roleTerminating
				p.again(linger)
			}
		case r.sessions > 0 || r.queued > 0:
			p.roles[r.uid] = roleTerminating
			p.again(linger)
		default:
			// Clients still came until kube-proxy took in that it is not ready any
			// more, and this pass may not know of them yet.
			since := r.steppedDown
			if was == roleReady || since.IsZero() {
				since = now
			}
			if left := latest(r.lastActive, since).Add(linger).Sub(now); left > 0 {
				p.roles[r.uid] = roleTerminating
				p.again(left)
			}
		}
	}
}

// untilItListens is when to ask a resolver again that should listen on every
// port and doesn't; 0 when there is nothing to ask.
func untilItListens(ports []v1alpha1.PortStatus, r resolver, standIn bool) time.Duration {
	switch {
	case !r.ready, r.reachable && r.listensOn(ports):
		return 0
	case !r.reachable, len(r.portErrors) > 0:
		return 5 * time.Second
	case standIn:
		return 200 * time.Millisecond // its listeners are about to open
	default:
		return time.Second
	}
}

// awaitFront looks again until somebody listens for a front: soon at first, for a
// listener that is about to open. That a resolver becomes ready is watched.
func (p *plan) awaitFront(now time.Time, es *v1alpha1.ElasticService, o observed) {
	if es.Status.Front == nil || anyListens(es.Status.Front, o.resolvers) || !slices.ContainsFunc(o.resolvers, func(r resolver) bool { return r.ready }) {
		return
	}
	wait := 200 * time.Millisecond
	c := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionFrontReady)
	if c != nil && c.Status == metav1.ConditionFalse && now.Sub(c.LastTransitionTime.Time) > newTime {
		wait = 5 * time.Second
	}
	p.again(wait)
}

// planDeletion wakes the target and waits until the Service works without us.
// It never holds a user up for longer than deletionPatience.
func (p *plan) planDeletion(now time.Time, es *v1alpha1.ElasticService, o observed) {
	patience := es.DeletionTimestamp.Add(deletionPatience).Sub(now)
	gone := o.service == nil || o.namespaceEnding || isUserError(o.scale.err) || o.older != "" || o.neverStarted
	ours := o.older == "" && !o.neverStarted && !o.namespaceEnding
	p.raise = ours && o.scale.err == nil && o.scale.replicas == 0
	if gone || patience <= 0 {
		p.release = true
		return
	}
	carrying := false
	for _, r := range p.roles {
		carrying = carrying || r != roleNone
	}
	p.release = p.phase == v1alpha1.PhaseAwake && !carrying && !o.former
	p.again(min(patience, linger))
}

// again asks for another pass after d at the latest.
func (p *plan) again(d time.Duration) {
	if d > 0 && (p.requeue == 0 || d < p.requeue) {
		p.requeue = d
	}
}

// clients are those of all resolvers together.
type clients struct {
	sessions, queued int32
	lastActive       time.Time
	// watched is since when all of them have watched, where clients have no way but
	// through them; zero where that doesn't matter.
	watched time.Time
	err     error
}

func sumClients(now time.Time, resolvers []resolver, handoff v1alpha1.Handoff) clients {
	var c clients
	var errs []error
	for _, r := range resolvers {
		if !r.reachable {
			if now.Sub(r.silentSince) < lostAfter {
				errs = append(errs, fmt.Errorf("resolver %s doesn't answer: %w", r.podName, r.err))
			}
			continue
		}
		c.sessions += r.sessions
		c.queued += r.queued
		c.lastActive = latest(c.lastActive, r.lastActive)
		if r.lastActive.IsZero() && handoff == v1alpha1.HandoffNever {
			c.watched = latest(c.watched, r.started) // what was before it started is not known
		}
	}
	c.err = errors.Join(errs...)
	return c
}

// mayNotSleep says that a service that could sleep may not, or not yet.
func (o *observed) mayNotSleep(es *v1alpha1.ElasticService) bool {
	return blocked(es, *o) != nil || !o.leftovers.again.IsZero() || len(o.leftovers.slices) > 0 || o.former
}

// blocked is why a service that could sleep may not, as an error with a reason.
func blocked(es *v1alpha1.ElasticService, o observed) *obstacle {
	if ob := bypassedByEndpoints(es, o); ob != nil {
		return ob
	}
	if handoff(es) == v1alpha1.HandoffNever && o.service != nil && len(o.service.Spec.Selector) > 0 {
		return &obstacle{
			reason: v1alpha1.ReasonSelectorBypassesResolver,
			message: fmt.Sprintf("Service %s has a selector, by which Kubernetes sends clients past the resolver: remove spec.selector from the Service "+
				"(Dormouse finds the pods by the target's scale), or set handoff: Direct.", es.Spec.Service),
		}
	}
	return nil
}

func anyEligible(es *v1alpha1.ElasticService, resolvers []resolver) bool {
	for _, r := range resolvers {
		if r.ready && r.reachable && r.listensOn(es.Status.Ports) {
			return true
		}
	}
	return false
}

// anyListens says that some resolver takes a front's clients.
func anyListens(front *v1alpha1.FrontStatus, resolvers []resolver) bool {
	for _, r := range resolvers {
		if r.ready && r.reachable && r.listening[front.ResolverPort] {
			return true
		}
	}
	return false
}

// anyRunning says that some server may be up again.
func anyRunning(servers []server) bool {
	for _, s := range servers {
		if !s.terminating && !s.draining {
			return true
		}
	}
	return false
}

func isAwake(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseAwake || p == v1alpha1.PhaseFallingAsleep
}

// settleTime is how long FallingAsleep lasts at least. With handoff Never no
// endpoint changes, so there is nothing for kube-proxy to take in.
func settleTime(es *v1alpha1.ElasticService) time.Duration {
	if handoff(es) == v1alpha1.HandoffNever {
		return 100 * time.Millisecond
	}
	return settle
}

// handoff is what the spec says, but for a deleted object, whose Service is to
// work without a resolver.
func handoff(es *v1alpha1.ElasticService) v1alpha1.Handoff {
	if !es.DeletionTimestamp.IsZero() {
		return v1alpha1.HandoffDirect
	}
	return es.Spec.Handoff
}

func hasTriggers(es *v1alpha1.ElasticService) bool {
	return es.Spec.Idle != nil && len(es.Spec.Idle.Triggers) > 0
}

func sleepAfter(es *v1alpha1.ElasticService) time.Duration {
	if es.Spec.SleepAfter == nil {
		return 10 * time.Minute
	}
	return es.Spec.SleepAfter.Duration
}

func phaseSince(es *v1alpha1.ElasticService) time.Time { return microTime(es.Status.PhaseSince) }

func keptSince(es *v1alpha1.ElasticService) time.Time {
	if es.Status.IdleSince == nil {
		return time.Time{}
	}
	return es.Status.IdleSince.Time
}

func microTime(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
