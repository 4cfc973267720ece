package status

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/text"
)

// targetFound is the condition whether the target can be scaled.
func targetFound(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.TargetFound
	ref := es.Spec.ScaleTargetRef
	if o.Scale.Err == nil {
		return condition.True(kind, reasons.OK, "The %s can be scaled.", ref.Kind)
	}
	reason := target.Reason(o.Scale.Err)
	advice := map[string]string{
		reasons.TargetNotFound:      "create it, or correct spec.scaleTargetRef",
		reasons.TargetNotScalable:   "name an object of a kind that has one in spec.scaleTargetRef",
		reasons.TargetClusterScoped: "name an object of the ElasticService's namespace in spec.scaleTargetRef",
		reasons.TargetForbidden:     "grant the operator get and update on that kind's scale",
		reasons.TargetUnreadable:    "Dormouse tries again",
	}[reason]
	message := fmt.Sprintf("%s; %s.", text.UpperFirst(o.Scale.Err.Error()), advice)
	if reason == reasons.TargetUnreadable {
		return condition.Unknown(kind, reason, "%s", message)
	}
	return condition.False(kind, reason, "%s", message)
}

// endpointsInSync is the condition whether the resolvers that can stand in do so.
func endpointsInSync(now time.Time, es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings, p planner.Plan) metav1.Condition {
	const kind = conditions.EndpointsInSync
	if f.Obstacle != nil {
		return condition.Unknown(kind, reasons.NotObserved, "Another obstacle comes first: %s", f.Obstacle.Message)
	}
	ready := 0
	var late, fresh []string
	for _, r := range o.Resolvers {
		var what string
		switch {
		case !r.Ready:
			continue
		case r.ListensOn(es.Status.Ports) && r.Reachable:
			ready++
			continue
		case !r.Reachable:
			what = fmt.Sprintf("resolver %s doesn't answer (%v)", r.PodName, r.Err)
		case len(r.PortErrors) > 0:
			what = fmt.Sprintf("resolver %s can't listen (%s)", r.PodName, strings.Join(r.PortErrors, "; "))
		default:
			what = fmt.Sprintf("resolver %s doesn't listen yet", r.PodName)
		}
		if now.Sub(r.FirstAsked) < planner.NewResolverTime {
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
		return condition.False(kind, reasons.ResolverNotListening, "Waiting: %s.", strings.Join(late, ", "))
	case ready == 0:
		return condition.False(kind, reasons.NoResolver,
			"No resolver pod is ready, so nobody can stand in for the service: look at the resolver's Deployment and its pods.")
	}
	if family := missingFamily(o); family != "" {
		return condition.False(kind, reasons.NoResolver,
			"Service %s has an %s address and no resolver pod has one: make the resolver's pods dual-stack, or the Service single-stack.", es.Spec.Service, family)
	}
	if p.Mode == v1alpha1.ModeProxy {
		return condition.True(kind, reasons.OK, "New clients go to the resolver.")
	}
	return condition.True(kind, reasons.OK, "New clients go to %d servers.", o.Up)
}

// missingFamily is an address family of the Service in which no resolver can be reached; empty
// when there is none.
func missingFamily(o planner.Observed) corev1.IPFamily {
	for _, family := range o.Service.Spec.IPFamilies {
		reached := false
		for _, r := range o.Resolvers {
			reached = reached || r.Ready && endpoints.AddressOf(r.Addresses, discoveryv1.AddressType(family)) != ""
		}
		if !reached {
			return family
		}
	}
	return ""
}

// serverUp is the condition whether a server is up, and why none is.
func serverUp(o planner.Observed, f planner.Findings) metav1.Condition {
	const kind = conditions.ServerUp
	switch {
	case f.Obstacle != nil:
		return condition.Unknown(kind, reasons.NotObserved, "Another obstacle comes first: %s", f.Obstacle.Message)
	case o.Scale.Err != nil:
		return condition.Unknown(kind, reasons.NotObserved, "The target is not known.")
	case f.Cause != nil && f.Cause.Wrong:
		return condition.False(kind, f.Cause.Reason, "%s", f.Cause.Sentence)
	case o.Unsettled.Waits != nil && o.Up == 0:
		return condition.Unknown(kind, reasons.PodsUnsettled, "The pods are from before the sleep and may still be ended: %.300v.", o.Unsettled.Waits)
	case f.Cause != nil:
		return condition.Unknown(kind, f.Cause.Reason, "%s", f.Cause.Sentence)
	case o.Scale.Replicas == 0:
		return condition.Unknown(kind, reasons.NotNeeded, "No server is wanted while the service sleeps.")
	case o.Up == 0:
		return condition.Unknown(kind, reasons.ServerStarting, "A server is on its way.")
	default:
		return condition.True(kind, reasons.OK, "A server is up.")
	}
}
