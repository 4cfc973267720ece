package resolverports

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/spec"
)

// maxPorts is how many ports of a Service can be held.
const maxPorts = 64

// Assign gives each port of the Service its entry in the status. The port keeps its resolver
// port, unless that belongs to another owner, and gets a new one otherwise. Entries of ports
// that are gone free theirs. A flaw is why a port has no entry, or not the one that the spec
// asks for.
func Assign(now time.Time, es *v1alpha1.ElasticService, svc *corev1.Service, a *Allocator, inUse func(int32) bool) (ports []v1alpha1.PortStatus, flaw *obstacle.Obstacle) {
	current := map[string]v1alpha1.PortStatus{}
	for _, p := range es.Status.Ports {
		current[p.Name] = p
	}
	var specs map[string]v1alpha1.PortSpec
	var wrong, unheld, lacking *obstacle.Obstacle
	if len(es.Spec.Ports) > 0 {
		specs, wrong = spec.Ports(es, svc)
	}
	ports = make([]v1alpha1.PortStatus, 0, len(svc.Spec.Ports))
	kept := map[int32]bool{}
	for _, sp := range svc.Spec.Ports {
		want := v1alpha1.PortStatus{Name: sp.Name, Protocol: spec.DefaultProtocol(sp), Readiness: v1alpha1.ReadinessAuto}
		if want.Protocol == "" {
			unheld = cmp.Or(unheld, spec.NotHoldable(svc, sp))
			continue
		}
		if said, ok := specs[sp.Name]; ok {
			if said.Protocol != "" {
				want.Protocol = said.Protocol
			}
			if said.Readiness != "" {
				want.Readiness = said.Readiness
			}
		}
		if len(ports) == maxPorts {
			lacking = obstacle.New(reasons.TooManyPorts,
				"Service %s has %d ports, of which the first %d are held: share them out among several Services, or leave some out.", svc.Name, len(svc.Spec.Ports), maxPorts)
			break
		}
		owner := Owner{es.Namespace, es.UID, sp.Name, want.Protocol.Transport()}
		old, had := current[sp.Name]
		if had && old.Protocol.Transport() == want.Protocol.Transport() && a.Learn(old.ResolverPort, owner) {
			want.ResolverPort = old.ResolverPort
		} else {
			port, err := a.Allocate(now, owner, inUse)
			if err != nil {
				lacking = a.Exhausted(err, es.Namespace, fmt.Sprintf("port %q", sp.Name))
				continue
			}
			want.ResolverPort = port
		}
		kept[want.ResolverPort] = true
		ports = append(ports, want)
	}
	if len(ports) == 0 && lacking == nil {
		return nil, cmp.Or(unheld, wrong) // nothing can be done, and what there is stays
	}
	for _, old := range es.Status.Ports {
		if !kept[old.ResolverPort] {
			a.Free(now, old.ResolverPort, es.UID)
		}
	}
	return ports, cmp.Or(lacking, unheld, wrong)
}
