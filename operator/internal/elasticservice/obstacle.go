package elasticservice

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

// obstacle is something in the spec or around it that a user must change before
// the service can sleep and wake. It becomes the reason and message of Ready.
type obstacle struct {
	reason  string
	message string
}

func (o *obstacle) Error() string { return o.message }

// checkService finds what is wrong with the Service or with what the spec says
// of its ports.
func checkService(es *v1alpha1.ElasticService, o observed) *obstacle {
	svc := o.service
	switch {
	case svc == nil:
		return &obstacle{v1alpha1.ReasonServiceNotFound, fmt.Sprintf(
			"There is no Service %s in namespace %s: create it, or correct spec.service by replacing this ElasticService.", es.Spec.Service, es.Namespace)}
	case o.older != "":
		return &obstacle{v1alpha1.ReasonServiceTaken, fmt.Sprintf(
			"ElasticService %s is older and has Service %s already: delete one of the two.", o.older, es.Spec.Service)}
	case o.targetTaken != "":
		return &obstacle{v1alpha1.ReasonTargetTaken, fmt.Sprintf(
			"ElasticService %s is older and has %s %s as its target already, so each would put the other's clients to sleep: give one Service all the ports, TCP and UDP alike, and delete this ElasticService.",
			o.targetTaken, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)}
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		return &obstacle{v1alpha1.ReasonServiceUnsupported, fmt.Sprintf(
			"Service %s is of type ExternalName and has no endpoints to switch: use a Service of type ClusterIP, NodePort or LoadBalancer.", svc.Name)}
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return &obstacle{v1alpha1.ReasonServiceUnsupported, fmt.Sprintf(
			"Service %s is headless, so clients connect to the pods and not to an address that can be switched: use a Service with a cluster IP.", svc.Name)}
	case len(svc.Spec.Ports) == 0:
		return &obstacle{v1alpha1.ReasonServiceUnsupported, fmt.Sprintf("Service %s has no ports: give it the ports that clients connect to.", svc.Name)}
	}
	byName := map[string]corev1.ServicePort{}
	for _, p := range svc.Spec.Ports {
		byName[p.Name] = p
		if p.Protocol != corev1.ProtocolTCP && p.Protocol != corev1.ProtocolUDP && p.Protocol != "" {
			return &obstacle{v1alpha1.ReasonServiceUnsupported, fmt.Sprintf(
				"Port %q of Service %s is %s: only TCP and UDP ports can be held.", p.Name, svc.Name, p.Protocol)}
		}
	}
	for _, spec := range es.Spec.Ports {
		p, ok := byName[spec.Name]
		if !ok {
			return &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(
				"spec.ports names %q, but Service %s has no port of that name: correct the name or remove the entry.", spec.Name, svc.Name)}
		}
		if spec.Protocol != "" && spec.Protocol.Transport() != defaultProtocol(p.Protocol).Transport() {
			return &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(
				"spec.ports says %s for %q, but the port is %s in Service %s: make them agree.", spec.Protocol, spec.Name, p.Protocol, svc.Name)}
		}
		if spec.Readiness == v1alpha1.ReadinessConnect && defaultProtocol(p.Protocol).Transport() == corev1.ProtocolUDP {
			return &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(
				"spec.ports says readiness Connect for %q, which is UDP and has no connect: remove readiness or set Auto.", spec.Name)}
		}
	}
	return nil
}

// isUserError says whether an error of the scale stays until a user changes
// something.
func isUserError(err error) bool {
	return errors.Is(err, target.ErrNotFound) || errors.Is(err, target.ErrNotScalable) || errors.Is(err, target.ErrClusterScoped)
}

// targetReason is the reason of the condition TargetFound for an error of the scale.
func targetReason(err error) string {
	switch {
	case errors.Is(err, target.ErrNotFound):
		return v1alpha1.ReasonTargetNotFound
	case errors.Is(err, target.ErrClusterScoped):
		return v1alpha1.ReasonTargetClusterScoped
	case errors.Is(err, target.ErrNotScalable):
		return v1alpha1.ReasonTargetNotScalable
	case errors.Is(err, target.ErrForbidden):
		return v1alpha1.ReasonTargetForbidden
	default:
		return v1alpha1.ReasonTargetUnreadable
	}
}
