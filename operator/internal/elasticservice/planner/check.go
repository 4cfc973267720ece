package planner

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/text"
)

// CheckService finds problems with the Service that prevent everything. Ports that can't be held are
// found where resolver ports are assigned.
func CheckService(es *v1alpha1.ElasticService, o Observed) *obstacle.Obstacle {
	svc := o.Service
	switch {
	case svc == nil:
		return obstacle.New(reasons.ServiceNotFound,
			"There is no Service %s in namespace %s: create it, or correct spec.service by replacing this ElasticService.", es.Spec.Service, es.Namespace)
	case o.Older != "":
		return obstacle.New(reasons.ServiceTaken,
			"ElasticService %s is older and has Service %s already: delete one of the two.", o.Older, es.Spec.Service)
	case o.TargetTaken != "":
		return obstacle.New(reasons.TargetTaken,
			"ElasticService %s is older and has %s %s as its target already, so each would put the other's clients to sleep: give one Service all the ports, TCP and UDP alike, and delete this ElasticService.",
			o.TargetTaken, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return obstacle.New(reasons.ServiceUnsupported,
			"Service %s is of type ExternalName and has no endpoints to switch: use a Service of type ClusterIP, NodePort or LoadBalancer.", svc.Name)
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return obstacle.New(reasons.ServiceUnsupported,
			"Service %s is headless, so clients connect to the pods and not to an address that can be switched: use a Service with a cluster IP.", svc.Name)
	case len(svc.Spec.Ports) == 0:
		return obstacle.New(reasons.ServiceUnsupported, "Service %s has no ports: give it the ports that clients connect to.", svc.Name)
	}
	return nil
}

// mayNotSleep reports whether a service that could sleep may not, or not yet.
func (d *decision) mayNotSleep() bool {
	left := d.o.Leftovers
	return d.o.Blocked != nil || d.o.Scale.LosesDisks || d.o.Autoscaler.Problem != nil || !left.Next.IsZero() || len(left.Slices) > 0 || d.found.Former
}

// Blocked is why a service with this handoff that could sleep may not; nil: it may.
func Blocked(es *v1alpha1.ElasticService, o Observed, handoff v1alpha1.Handoff) *obstacle.Obstacle {
	switch {
	case o.Leftovers.Mirrored:
		return obstacle.New(reasons.EndpointsBypassResolver,
			"There is an Endpoints object %s, which Kubernetes leaves behind when a Service loses its selector, and by which clients go past the resolver and to pods that are gone: kubectl delete endpoints %s -n %s.",
			es.Spec.Service, es.Spec.Service, es.Namespace)
	case handoff == v1alpha1.HandoffNever && o.Service != nil && len(o.Service.Spec.Selector) > 0:
		return obstacle.New(reasons.SelectorBypassesResolver, "Service %s has a selector, by which Kubernetes sends clients past the resolver: remove spec.selector from the Service "+
			"(Dormouse finds the pods by the target's scale), or set handoff: Direct.", es.Spec.Service)
	}
	return nil
}

// DisksFlaw explains what to change where the target would lose its disks if it were put to sleep; nil where it
// wouldn't, or never is.
func DisksFlaw(es *v1alpha1.ElasticService, o Observed) *obstacle.Obstacle {
	if !o.Scale.LosesDisks || o.Is.SleepAfter == 0 {
		return nil
	}
	return obstacle.New(reasons.TargetLosesDisks,
		"Kubernetes would delete the disks of %s %s once it is scaled to zero, so Dormouse doesn't put it to sleep: set spec.persistentVolumeClaimRetentionPolicy.whenScaled to Retain.",
		es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
}

// StrangersFlaw explains what to do about pods that the selector matches and that aren't the
// target's; nil where there are none.
func StrangersFlaw(es *v1alpha1.ElasticService, o Observed) *obstacle.Obstacle {
	if len(o.Strangers) == 0 {
		return nil
	}
	target := fmt.Sprintf("%s %s", es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	if o.Service != nil && len(o.Service.Spec.Selector) == 0 {
		return obstacle.New(reasons.SelectorMatchesOthers,
			"The selector of %s matches pods that aren't its own (%s), so that clients are sent to them: give those other labels, or the target a narrower selector.", target, text.Some(o.Strangers))
	}
	return obstacle.New(reasons.SelectorMatchesOthers,
		"The selector of Service %s matches pods that aren't those of %s (%s), so that clients reach them while it sleeps: make the selector narrower, or give those pods other labels.",
		es.Spec.Service, target, text.Some(o.Strangers))
}
