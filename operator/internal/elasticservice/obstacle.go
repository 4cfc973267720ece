package elasticservice

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

// obstacle is something in the spec or around it that a user must change before
// the service can sleep and wake as asked. It becomes the reason and message of Ready. One
// that nothing can be done against stops a pass; with a flaw it goes on with what is left.
type obstacle struct {
	reason  string
	message string
}

func (o *obstacle) Error() string { return o.message }

// checkService finds what is so wrong with the Service that nothing can be done.
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
	case !slices.ContainsFunc(svc.Spec.Ports, holdable):
		return notHoldable(svc, svc.Spec.Ports[0])
	}
	return nil
}

// portSpecs are what the spec says of the Service's ports, as far as it can be followed,
// and what of it can't; nil: nothing. What can't is as if it weren't there.
func portSpecs(es *v1alpha1.ElasticService, svc *corev1.Service) (map[string]v1alpha1.PortSpec, *obstacle) {
	byName := map[string]corev1.ServicePort{}
	var flaw *obstacle
	wrong := func(format string, args ...any) {
		if flaw == nil {
			flaw = &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(format, args...)}
		}
	}
	for _, p := range svc.Spec.Ports {
		byName[p.Name] = p
		if !holdable(p) && flaw == nil {
			flaw = notHoldable(svc, p)
		}
	}
	specs := map[string]v1alpha1.PortSpec{}
	for _, spec := range es.Spec.Ports {
		p, ok := byName[spec.Name]
		switch {
		case !ok:
			wrong("spec.ports names %q, but Service %s has no port of that name: correct the name or remove the entry.", spec.Name, svc.Name)
			continue
		case spec.Protocol != "" && spec.Protocol.Transport() != defaultProtocol(p.Protocol).Transport():
			wrong("spec.ports says %s for %q, but the port is %s in Service %s: make them agree.", spec.Protocol, spec.Name, p.Protocol, svc.Name)
			spec.Protocol = ""
		}
		if spec.Readiness == v1alpha1.ReadinessConnect && defaultProtocol(p.Protocol).Transport() == corev1.ProtocolUDP {
			wrong("spec.ports says readiness Connect for %q, which is UDP and has no connect: remove readiness or set Auto.", spec.Name)
			spec.Readiness = ""
		}
		specs[spec.Name] = spec
	}
	return specs, flaw
}

func notHoldable(svc *corev1.Service, p corev1.ServicePort) *obstacle {
	return &obstacle{v1alpha1.ReasonServiceUnsupported, fmt.Sprintf("Port %q of Service %s is %s: only TCP and UDP ports can be held.", p.Name, svc.Name, p.Protocol)}
}

// holdable says whether clients of a port can be held.
func holdable(p corev1.ServicePort) bool {
	return p.Protocol == corev1.ProtocolTCP || p.Protocol == corev1.ProtocolUDP || p.Protocol == ""
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
