package spec

import (
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/obstacle"
)

// Ports are the spec's settings for the Service's ports, as far as they can be followed, and an
// obstacle for the first that can't, which is ignored; nil: there is none.
func Ports(es *v1alpha1.ElasticService, svc *corev1.Service) (map[string]v1alpha1.PortSpec, *obstacle.Obstacle) {
	byName := map[string]corev1.ServicePort{}
	var flaw *obstacle.Obstacle
	wrong := func(format string, args ...any) {
		if flaw == nil {
			flaw = obstacle.New(reasons.PortUnknown, format, args...)
		}
	}
	for _, p := range svc.Spec.Ports {
		byName[p.Name] = p
	}
	specs := map[string]v1alpha1.PortSpec{}
	for _, spec := range es.Spec.Ports {
		p, ok := byName[spec.Name]
		switch {
		case !ok:
			wrong("spec.ports names %q, but Service %s has no port of that name: correct the name or remove the entry.", spec.Name, svc.Name)
			continue
		case spec.Protocol != "" && spec.Protocol.Transport() != DefaultProtocol(p).Transport():
			wrong("spec.ports says %s for %q, but the port is %s in Service %s: make them agree.", spec.Protocol, spec.Name, p.Protocol, svc.Name)
			spec.Protocol = ""
		}
		if spec.Readiness == v1alpha1.ReadinessConnect && DefaultProtocol(p).Transport() == corev1.ProtocolUDP {
			wrong("spec.ports says readiness Connect for %q, which is UDP and has no connect: remove readiness or set Auto.", spec.Name)
			spec.Readiness = ""
		}
		specs[spec.Name] = spec
	}
	return specs, flaw
}

// NotHoldable is the flaw of a port whose clients can't be held.
func NotHoldable(svc *corev1.Service, p corev1.ServicePort) *obstacle.Obstacle {
	return obstacle.New(reasons.ServiceUnsupported, "Port %q of Service %s is %s: only TCP and UDP ports can be held.", p.Name, svc.Name, p.Protocol)
}

// DefaultProtocol is the protocol of a port that is not in the spec; empty where its clients can't
// be held.
func DefaultProtocol(p corev1.ServicePort) v1alpha1.Protocol {
	switch p.Protocol {
	case corev1.ProtocolUDP:
		return v1alpha1.ProtocolUDP
	case corev1.ProtocolTCP, "":
		return v1alpha1.ProtocolTCP
	case corev1.ProtocolSCTP:
	}
	return ""
}
