package elasticservice

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/target"
)

// setStatus writes what a pass found and decided into the object's status. ob is
// what stopped it early, nil when nothing did.
func setStatus(now time.Time, es *v1alpha1.ElasticService, o observed, p plan, ob *obstacle) {
	s := &es.Status
	s.ObservedGeneration = es.Generation
	if ob == nil {
		if s.Phase != p.phase && p.phase != "" {
			if p.phase == v1alpha1.PhaseAsleep {
				s.LastSleepTime = &metav1.MicroTime{Time: now}
				keepReplicas(es, p)
			}
			s.PhaseSince = &metav1.MicroTime{Time: now}
		}
		s.Phase, s.Mode = p.phase, p.mode
		s.IdleSince = keptIdle(now, es, p.idle, p.phase)
		s.Sessions, s.Queued = p.sessions, p.queued
		if o.scale.err == nil {
			s.Replicas = o.scale.replicas
			s.Readiness = o.scale.readiness
			if s.Replicas > 0 && s.AsleepTarget != nil && target.Same(s.AsleepTarget.ScaleTargetRef, es.Spec.ScaleTargetRef) {
				s.AsleepTarget = nil
			}
		}
	}
	s.PodsBeforeSleep = o.unsettled.list()
	keepLists(es, o)
	condition.SetAll(&s.Conditions, es.Generation, metav1.Time{Time: now}, conditions(now, es, o, p, ob)...)
}

// keepReplicas notes with how many replicas a service has fallen asleep. Whoever put it
// to sleep by hand scaled what was seen last.
func keepReplicas(es *v1alpha1.ElasticService, p plan) {
	if !p.commit && es.Status.Replicas > 0 {
		es.Status.ReplicasBeforeSleep = es.Status.Replicas
	}
}

// conditions are all that an ElasticService has. Ready sums up the others: its
// message is that of the first thing that stands in the way.
func conditions(now time.Time, es *v1alpha1.ElasticService, o observed, p plan, ob *obstacle) []metav1.Condition {
	list := []metav1.Condition{
		targetFound(es, o),
		endpointsInSync(now, es, o, p, ob),
		triggersHealthy(es, o),
		playersKnown(es, o),
		idleSignal(es, o),
		directGated(es, o),
		drainSafe(es, o),
		udpSessionsKept(o),
		sourceIPPreserved(es, o),
		trafficPolicy(es, o),
		serverUp(o, ob),
		frontReady(es, o, ob),
		wakePlayersKnown(es, o),
	}
	ready := condition.True(v1alpha1.ConditionReady, v1alpha1.ReasonOK, "The service sleeps and wakes as asked.")
	switch {
	case ob != nil:
		ready = condition.False(v1alpha1.ConditionReady, ob.reason, "%s", ob.message)
	case list[0].Status != metav1.ConditionTrue:
		ready = condition.False(v1alpha1.ConditionReady, list[0].Reason, "%s", list[0].Message)
	case blocked(es, o) != nil:
		ready = condition.False(v1alpha1.ConditionReady, blocked(es, o).reason, "%s", blocked(es, o).message)
	case o.flaw != nil:
		ready = condition.False(v1alpha1.ConditionReady, o.flaw.reason, "%s", o.flaw.message)
	case list[1].Status != metav1.ConditionTrue:
		ready = condition.False(v1alpha1.ConditionReady, list[1].Reason, "%s", list[1].Message)
	case o.cause != nil && o.cause.Wrong:
		ready = condition.False(v1alpha1.ConditionReady, o.cause.Reason, "%s", o.cause.Sentence)
	case o.front.obstacle != nil:
		ready = condition.False(v1alpha1.ConditionReady, o.front.obstacle.reason, "%s", o.front.obstacle.message)
	default:
		// It wakes as asked, and may not sleep so.
		for _, c := range list {
			if c.Status == metav1.ConditionFalse && slices.Contains(keepAwake, c.Type) {
				ready = condition.False(v1alpha1.ConditionReady, c.Reason, "%s", c.Message)
				break
			}
		}
	}
	return append(list, ready)
}

// keepAwake are the conditions that say, where they are False, why a service doesn't
// sleep as the spec asks.
var keepAwake = []string{v1alpha1.ConditionTriggersHealthy, v1alpha1.ConditionPlayersKnown, v1alpha1.ConditionIdleSignal}

func targetFound(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionTargetFound
	ref := es.Spec.ScaleTargetRef
	if o.scale.err == nil {
		return condition.True(kind, v1alpha1.ReasonOK, "%s %s can be scaled.", ref.Kind, ref.Name)
	}
	reason := targetReason(o.scale.err)
	advice := map[string]string{
		v1alpha1.ReasonTargetNotFound:      "create it, or correct spec.scaleTargetRef",
		v1alpha1.ReasonTargetNotScalable:   "name an object of a kind that has one in spec.scaleTargetRef",
		v1alpha1.ReasonTargetClusterScoped: "name an object of the ElasticService's namespace in spec.scaleTargetRef",
		v1alpha1.ReasonTargetForbidden:     "grant the operator get and update on that kind's scale",
		v1alpha1.ReasonTargetUnreadable:    "Dormouse tries again",
	}[reason]
	message := fmt.Sprintf("%s; %s.", upperFirst(o.scale.err.Error()), advice)
	if reason == v1alpha1.ReasonTargetUnreadable {
		return condition.Unknown(kind, reason, "%s", message)
	}
	return condition.False(kind, reason, "%s", message)
}

// newTime is how long a new resolver pod may take to stand in for all services
// before their conditions say that it doesn't. Where a pod is replaced nothing is
// wrong, and a status of each service would be written twice.
const newTime = 10 * time.Second

func endpointsInSync(now time.Time, es *v1alpha1.ElasticService, o observed, p plan, ob *obstacle) metav1.Condition {
	const kind = v1alpha1.ConditionEndpointsInSync
	if ob != nil {
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "Another obstacle comes first: %s", ob.message)
	}
	ready := 0
	var late, fresh []string
	for _, r := range o.resolvers {
		var what string
		switch {
		case !r.ready:
			continue
		case r.listensOn(es.Status.Ports) && r.reachable:
			ready++
			continue
		case !r.reachable:
			what = fmt.Sprintf("resolver %s doesn't answer (%v)", r.podName, r.err)
		case len(r.portErrors) > 0:
			what = fmt.Sprintf("resolver %s can't listen (%s)", r.podName, strings.Join(r.portErrors, "; "))
		default:
			what = fmt.Sprintf("resolver %s doesn't listen yet", r.podName)
		}
		if now.Sub(r.firstAsked) < newTime {
			fresh = append(fresh, what)
		} else {
			late = append(late, what)
		}
	}
	if ready == 0 {
		late = append(late, fresh...)
	}
	switch {
	case len(late) > 0:
		return condition.False(kind, v1alpha1.ReasonResolverNotListening, "Waiting: %s.", strings.Join(late, ", "))
	case ready == 0:
		return condition.False(kind, v1alpha1.ReasonNoResolver,
			"No resolver pod is ready, so nobody can stand in for the service: look at the resolver's Deployment and its pods.")
	}
	if family := missingFamily(o); family != "" {
		return condition.False(kind, v1alpha1.ReasonNoResolver,
			"Service %s has an %s address and no resolver pod has one: make the resolver's pods dual-stack, or the Service single-stack.", es.Spec.Service, family)
	}
	if p.mode == v1alpha1.ModeProxy {
		return condition.True(kind, v1alpha1.ReasonOK, "New clients go to the resolver.")
	}
	return condition.True(kind, v1alpha1.ReasonOK, "New clients go to %d servers.", countUp(o.servers))
}

// missingFamily is an address family of the Service in which no resolver can be
// reached; empty when there is none.
func missingFamily(o observed) corev1.IPFamily {
	for _, family := range o.service.Spec.IPFamilies {
		reached := false
		for _, r := range o.resolvers {
			reached = reached || r.ready && addressOf(r.addresses, discoveryv1.AddressType(family)) != ""
		}
		if !reached {
			return family
		}
	}
	return ""
}

func serverUp(o observed, ob *obstacle) metav1.Condition {
	const kind = v1alpha1.ConditionServerUp
	switch {
	case ob != nil:
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "Another obstacle comes first: %s", ob.message)
	case o.scale.err != nil:
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The target is not known.")
	case o.cause != nil && o.cause.Wrong:
		return condition.False(kind, o.cause.Reason, "%s", o.cause.Sentence)
	case o.unsettled.waits != nil && countUp(o.servers) == 0:
		return condition.Unknown(kind, v1alpha1.ReasonPodsUnsettled, "The pods are from before the sleep and may still be ended: %.300v.", o.unsettled.waits)
	case o.cause != nil:
		return condition.Unknown(kind, o.cause.Reason, "%s", o.cause.Sentence)
	case o.scale.replicas == 0:
		return condition.Unknown(kind, v1alpha1.ReasonNotNeeded, "No server is wanted while the service sleeps.")
	case countUp(o.servers) == 0:
		return condition.Unknown(kind, v1alpha1.ReasonServerStarting, "A server is on its way.")
	default:
		return condition.True(kind, v1alpha1.ReasonOK, "A server is up.")
	}
}

func triggersHealthy(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionTriggersHealthy
	switch {
	case !hasTriggers(es):
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The spec has no triggers.")
	case o.triggers.Err != nil:
		return condition.False(kind, v1alpha1.ReasonTriggerUnreadable, "A trigger can't be read, so the service stays awake: %v.", o.triggers.Err)
	case o.triggers.At.IsZero():
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "Triggers are asked while a server is up.")
	default:
		return condition.True(kind, v1alpha1.ReasonOK, "Every trigger was read.")
	}
}

func playersKnown(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionPlayersKnown
	p := o.players.reports
	switch {
	case !hasPlayers(es):
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The spec doesn't ask for players.")
	case p.asked.IsZero():
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The Servers' reports are looked for once nothing else keeps the service awake.")
	case p.err != nil:
		return condition.False(kind, v1alpha1.ReasonReplicaSilent, "Who plays is not known, so the service stays awake: %v.", p.err)
	case len(p.silent) > 0:
		return condition.False(kind, v1alpha1.ReasonServersSilent,
			"A game runs and nothing was reported of it lately, so the service stays awake: %s. Look at the log of the container %s of each.",
			some(p.silent), v1alpha1.SidecarContainer)
	default:
		return condition.True(kind, v1alpha1.ReasonOK, "Every Server reports its players.")
	}
}

func idleSignal(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionIdleSignal
	switch {
	case blocked(es, o) != nil:
		return condition.False(kind, blocked(es, o).reason, "The resolver doesn't see all clients, so the service stays awake.")
	case sleepAfter(es) == 0:
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "sleepAfter is 0s, so the service never sleeps by itself.")
	case es.Spec.Handoff == v1alpha1.HandoffNever, hasTriggers(es), hasPlayers(es):
		return condition.True(kind, v1alpha1.ReasonOK, "Dormouse can tell whether the service is idle.")
	default:
		return condition.False(kind, v1alpha1.ReasonNoIdleSignal,
			"With handoff Direct the resolver doesn't see the clients of an awake service, so it never sleeps by itself: add spec.idle.triggers, or spec.idle.players for a Fleet or a GameType, or set handoff: Never.")
	}
}

func directGated(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionDirectGated
	switch {
	case es.Spec.Handoff == v1alpha1.HandoffNever:
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "No client connects past the resolver.")
	case o.scale.err != nil:
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The target is not known.")
	case o.scale.readiness == "":
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved,
			"Whether the target's pods have a readiness probe is not known: the operator could not read its pod template.")
	case o.scale.readiness == v1alpha1.PodReadinessProbe:
		return condition.True(kind, v1alpha1.ReasonOK, "Clients connect to a pod only once its readiness probe succeeds.")
	default:
		return condition.False(kind, v1alpha1.ReasonNoReadinessProbe,
			"The target's pods have no readiness probe, so new clients may reach one before it listens and fail while it boots: give the game container a readinessProbe.")
	}
}

func drainSafe(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionDrainSafe
	switch {
	case !refOf(es).HasServers():
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The target has no Servers, which alone are drained.")
	case o.service == nil:
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The Service is not known.")
	case len(o.service.Spec.Selector) > 0:
		return condition.False(kind, v1alpha1.ReasonSelectorCutsPlayers,
			"Service %s has a selector, so UDP players are cut off from a Server as soon as it is drained: remove the selector, and Dormouse writes the Service's endpoints.", o.service.Name)
	default:
		return condition.True(kind, v1alpha1.ReasonOK, "A Server that is drained keeps its players.")
	}
}

func trafficPolicy(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionTrafficPolicyUnsupported
	if o.service == nil {
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The Service is not known.")
	}
	internal := o.service.Spec.InternalTrafficPolicy
	local := o.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal ||
		internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal
	if local && es.Spec.Handoff != v1alpha1.HandoffNever {
		return condition.True(kind, v1alpha1.ReasonLocalTrafficPolicy,
			"Service %s has a traffic policy Local, so nodes lose their endpoints at each sleep and wake: set it to Cluster, or handoff: Never.", o.service.Name)
	}
	return condition.False(kind, v1alpha1.ReasonOK, "The Service's traffic policies work with this handoff.")
}

func frontReady(es *v1alpha1.ElasticService, o observed, ob *obstacle) metav1.Condition {
	const kind = v1alpha1.ConditionFrontReady
	switch {
	case es.Spec.Front == nil:
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The spec has no front.")
	case ob != nil:
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "Another obstacle comes first: %s", ob.message)
	case o.front.obstacle != nil:
		return condition.False(kind, o.front.obstacle.reason, "%s", o.front.obstacle.message)
	case es.Status.Front == nil || !anyListens(es.Status.Front, o.resolvers):
		return condition.False(kind, v1alpha1.ReasonResolverNotListening, "Waiting: no resolver pod that is ready takes the front's clients yet.")
	default:
		message := fmt.Sprintf("Clients who ask Service %s for these names are led here.", es.Spec.Front.Service)
		if f := es.Status.Front; !f.SourceIPPreserved {
			message += unseen(es, o.front.service)
		}
		return condition.True(kind, v1alpha1.ReasonOK, "%s", message)
	}
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
