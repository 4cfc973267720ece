package status

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// directGated is the condition whether clients that connect past the resolver reach servers
// that listen.
func directGated(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.DirectGated
	switch {
	case es.Spec.Handoff == v1alpha1.HandoffNever:
		return condition.True(kind, reasons.NotNeeded, "No client connects past the resolver.")
	case o.Scale.Err != nil:
		return condition.Unknown(kind, reasons.NotObserved, "The target is not known.")
	case o.Scale.Readiness == "":
		return condition.Unknown(kind, reasons.NotObserved,
			"Whether the target's pods have a readiness probe is not known: the operator could not read its pod template.")
	case o.Scale.Readiness == v1alpha1.PodReadinessProbe:
		return condition.True(kind, reasons.OK, "Clients connect to a pod only once its readiness probe succeeds.")
	default:
		return condition.False(kind, reasons.NoReadinessProbe,
			"The target's pods have no readiness probe, so new clients may reach one before it listens and fail while it boots: give the game container a readinessProbe.")
	}
}

// drainSafe is the condition whether players stay on a Server that is drained.
func drainSafe(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.DrainSafe
	switch {
	case !target.Of(es).HasServers():
		return condition.True(kind, reasons.NotNeeded, "The target has no Servers, which alone are drained.")
	case o.Service == nil:
		return condition.Unknown(kind, reasons.NotObserved, "The Service is not known.")
	case len(o.Service.Spec.Selector) > 0:
		return condition.False(kind, reasons.SelectorCutsPlayers,
			"Service %s has a selector, so UDP players are cut off from a Server as soon as it is drained: remove the selector, and Dormouse writes the Service's endpoints.", o.Service.Name)
	default:
		return condition.True(kind, reasons.OK, "A Server that is drained keeps its players.")
	}
}

// trafficPolicy is the condition whether nodes lose their endpoints at each sleep.
func trafficPolicy(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.TrafficPolicyUnsupported
	if o.Service == nil {
		return condition.Unknown(kind, reasons.NotObserved, "The Service is not known.")
	}
	internal := o.Service.Spec.InternalTrafficPolicy
	local := o.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal ||
		internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal
	if local && es.Spec.Handoff != v1alpha1.HandoffNever {
		return condition.True(kind, reasons.LocalTrafficPolicy,
			"Service %s has a traffic policy Local, so nodes lose their endpoints at each sleep and wake: set it to Cluster, or handoff: Never.", o.Service.Name)
	}
	return condition.False(kind, reasons.OK, "The Service's traffic policies work with this handoff.")
}

// frontReady is the condition whether the front leads its hosts here.
func frontReady(es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings) metav1.Condition {
	const kind = conditions.FrontReady
	switch {
	case es.Spec.Front == nil:
		return condition.True(kind, reasons.NotNeeded, "The spec has no front.")
	case f.Obstacle != nil:
		return condition.Unknown(kind, reasons.NotObserved, "Another obstacle comes first: %s", f.Obstacle.Message)
	case f.Front != nil:
		return condition.False(kind, f.Front.Reason, "%s", f.Front.Message)
	case es.Status.Front == nil || !endpoints.AnyListens(es.Status.Front, o.Resolvers):
		return condition.False(kind, reasons.ResolverNotListening, "Waiting: no resolver pod that is ready takes the front's clients yet.")
	default:
		message := fmt.Sprintf("Clients who ask Service %s for these names are led here.", es.Spec.Front.Service)
		if f := es.Status.Front; !f.SourceIPPreserved {
			message += front.Unseen(es, o.Front.Service)
		}
		return condition.True(kind, reasons.OK, "%s", message)
	}
}

// udpSessionsKept is the condition whether a port number of the Service makes nodes end its
// players' sessions: see package udpports.
func udpSessionsKept(o planner.Observed) metav1.Condition {
	const kind = conditions.UDPSessionsKept
	clash := o.Clash
	switch {
	case o.Service == nil:
		return condition.Unknown(kind, reasons.NotObserved, "The Service is not known.")
	case !udpports.Has(o.Service):
		return condition.True(kind, reasons.NotNeeded, "The Service has no UDP port.")
	case clash == nil:
		return condition.True(kind, reasons.OK, "No Server and no other Service has the number of a UDP port of this Service.")
	case clash.HostPortOf.Name != "":
		return condition.False(kind, reasons.HostPortClash,
			"UDP port %d of Service %s is also a host port of Server %s, and each time a Pod with it starts, its node ends the sessions of UDP players who came in there: give one of the two another number.",
			clash.Number, o.Service.Name, clash.HostPortOf)
	default:
		return condition.False(kind, reasons.NodePortClash,
			"UDP port %d of Service %s is also a node port of Service %s, and kube-proxy ends the sessions of UDP players whenever endpoints change: give one of the two another number.",
			clash.Number, o.Service.Name, clash.NodePortOf)
	}
}

// wakePlayersKnown is the condition whether the lists of players could be read.
func wakePlayersKnown(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.WakePlayersKnown
	switch {
	case len(index.PlayerLists(es)) == 0:
		return condition.True(kind, reasons.NotNeeded, "The spec names no list of players.")
	case o.Lists.Obstacle != nil:
		return condition.False(kind, o.Lists.Obstacle.Reason, "%s Until then those hold on that were known before.", o.Lists.Obstacle.Message)
	}
	return condition.True(kind, reasons.OK, "The lists of who may wake the service are read.")
}

// autoscalerReady is the condition whether what sets the target's replicas lets it sleep.
func autoscalerReady(o planner.Observed) metav1.Condition {
	const kind = conditions.AutoscalerReady
	a := o.Autoscaler
	switch {
	case a.Kind == "":
		return condition.True(kind, reasons.NotNeeded, "The spec names no autoscaler.")
	case a.Problem != nil:
		return condition.False(kind, a.Problem.Reason, "%s", a.Problem.Message)
	case a.Kind == v1alpha1.AutoscalerHPA:
		return condition.True(kind, reasons.OK, "HorizontalPodAutoscaler %s rests while the target is at zero.", a.Name)
	case a.Paused && !a.Ours:
		return condition.True(kind, reasons.PausedByOther, "Somebody else has paused ScaledObject %s: it stays paused, asleep and awake.", a.Name)
	default:
		return condition.True(kind, reasons.OK, "ScaledObject %s is paused while the service sleeps.", a.Name)
	}
}
