package publish

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
)

// Ports are the ports that the Service can have: those with a known number. Each leads to
// the port of its name in a Pod, whose number may differ between revisions.
func Ports(gt *v1alpha1.GameType) []corev1.ServicePort {
	var ports []corev1.ServicePort
	spec := &gt.Spec.Template.Spec
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.ContainerPort == 0 || !p.Published() {
			continue
		}
		for _, transport := range p.Protocol.Transports() {
			ports = append(ports, corev1.ServicePort{
				Name: servicePortName(p, transport), Protocol: transport, Port: p.ContainerPort, TargetPort: targetPort(spec, p, transport),
			})
		}
	}
	return ports
}

// servicePortName is a port's name in the Service. A TCPUDP port needs two names.
func servicePortName(p *v1alpha1.ServerPort, transport corev1.Protocol) string {
	if p.Protocol.Transport() != v1alpha1.ServerProtocolTCPUDP {
		return p.Name
	}
	return p.Name + "-" + strings.ToLower(string(transport))
}

// targetPort is the name of a template's port in its Pods, or its number where the other ports leave it
// no name.
func targetPort(s *v1alpha1.ServerSpec, p *v1alpha1.ServerPort, transport corev1.Protocol) intstr.IntOrString {
	name := gamepod.PortName(p, transport)
	if len(s.Template.Spec.Containers) == 0 {
		return intstr.FromInt32(p.ContainerPort)
	}
	game := cmp.Or(s.GameContainer, s.Template.Spec.Containers[0].Name)
	for _, c := range s.Template.Spec.Containers {
		for _, have := range c.Ports {
			same := cmp.Or(have.Protocol, corev1.ProtocolTCP) == transport
			switch {
			case c.Name == game && have.ContainerPort == p.ContainerPort && same && have.Name != "":
				return intstr.FromString(have.Name)
			case c.Name == game && have.ContainerPort == p.ContainerPort && same, have.Name == name:
				return intstr.FromInt32(p.ContainerPort)
			}
		}
	}
	for i := range s.Ports {
		other := &s.Ports[i]
		for _, over := range other.Protocol.Transports() {
			if (other != p || over != transport) && gamepod.PortName(other, over) == name {
				return intstr.FromInt32(p.ContainerPort)
			}
		}
	}
	return intstr.FromString(name)
}

// OldPort is a port of an earlier revision that still has Servers.
type OldPort struct {
	number    int32
	transport corev1.Protocol
	target    intstr.IntOrString
}

// OldPorts are the ports of an earlier revision's Servers.
func OldPorts(spec *v1alpha1.ServerSpec) []OldPort {
	var ports []OldPort
	for i := range spec.Ports {
		for _, transport := range spec.Ports[i].Protocol.Transports() {
			ports = append(ports, OldPort{spec.Ports[i].ContainerPort, transport, targetPort(spec, &spec.Ports[i], transport)})
		}
	}
	return ports
}

// PlanPorts decides which ports a Service has, of those of its GameType and those that it has. A port is known by its number.
// One that stays keeps its name, since players' UDP sessions end with it; a new one gets another name
// where its own is taken. One that no template has any more stays as long as old Servers have
// it: whoever plays there came by it.
func PlanPorts(gt *v1alpha1.GameType, ports []corev1.ServicePort, kind corev1.ServiceType, have []corev1.ServicePort, old []OldPort) []corev1.ServicePort {
	wanted := slices.Clone(ports)
	same := func(a, b *corev1.ServicePort) bool {
		return a.Port == b.Port && cmp.Or(a.Protocol, corev1.ProtocolTCP) == b.Protocol
	}
	var kept, dropped []corev1.ServicePort
	taken, stays := map[string]bool{}, make([]bool, len(wanted))
	for _, h := range have {
		h.Protocol = cmp.Or(h.Protocol, corev1.ProtocolTCP)
		if i := slices.IndexFunc(wanted, func(w corev1.ServicePort) bool { return same(&h, &w) }); i >= 0 {
			wanted[i].Name, wanted[i].NodePort, stays[i], taken[h.Name] = h.Name, h.NodePort, true, true
			// Old Pods may have that number by another name.
			if slices.ContainsFunc(old, func(o OldPort) bool {
				return o.number == h.Port && o.transport == h.Protocol && o.target != wanted[i].TargetPort
			}) {
				wanted[i].TargetPort = intstr.FromInt32(h.Port)
			}
			continue
		}
		i := slices.IndexFunc(old, func(o OldPort) bool { return o.number == h.Port && o.transport == h.Protocol })
		if i < 0 {
			dropped = append(dropped, h)
			continue
		}
		h.TargetPort, taken[h.Name] = old[i].target, true
		kept = append(kept, h)
	}
	for i := range wanted {
		w := &wanted[i]
		if !stays[i] && taken[w.Name] {
			w.Name += "-" + strconv.Itoa(int(w.Port))
		}
		// A published node port goes over with the last of those who came by the old number.
		for _, d := range dropped {
			if d.NodePort != 0 && d.Protocol == w.Protocol && (d.TargetPort == w.TargetPort || d.Name == ports[i].Name) {
				w.NodePort = d.NodePort
			}
		}
		for _, asked := range gt.Spec.Service.NodePorts {
			published := slices.ContainsFunc(kept, func(k corev1.ServicePort) bool { return k.NodePort == asked.NodePort && k.Protocol == w.Protocol })
			if !published && slices.ContainsFunc(gt.Spec.Template.Spec.Ports, func(p v1alpha1.ServerPort) bool {
				return p.Name == asked.Name && servicePortName(&p, w.Protocol) == ports[i].Name
			}) {
				w.NodePort = asked.NodePort
			}
		}
	}
	all := append(wanted, kept...)
	if kind == corev1.ServiceTypeClusterIP {
		for i := range all {
			all[i].NodePort = 0
		}
	}
	return all
}
