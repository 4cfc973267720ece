package hostports

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
)

// Exposed reports whether a port has a host port.
func Exposed(p v1alpha1.ServerPort) bool {
	return p.Expose == v1alpha1.ExposeHostPort || p.Expose == v1alpha1.ExposePassthrough
}

// picked reports whether the operator picks the host port.
func picked(p v1alpha1.ServerPort) bool { return Exposed(p) && p.HostPort == 0 }

// Picks reports whether the operator picks any of a Server's host ports.
func Picks(s *v1alpha1.Server) bool {
	return slices.ContainsFunc(s.Spec.Ports, picked)
}

// Listen is the port on which the game listens.
func Listen(p v1alpha1.ServerPort, hostPort int32) int32 {
	if p.Expose == v1alpha1.ExposePassthrough {
		return hostPort
	}
	return p.ContainerPort
}

// Status are the ports to connect to at the Server's address: those that are exposed, on the
// node, or, where none is, all of them on the Pod. A Pod that was created from an older spec may
// lack a port.
func Status(s *v1alpha1.Server, pod *corev1.Pod) []v1alpha1.ServerPortStatus {
	var ports []v1alpha1.ServerPortStatus
	onNode := slices.ContainsFunc(s.Spec.Ports, Exposed)
	for i, number := range Of(s, pod) {
		port := s.Spec.Ports[i]
		if !onNode {
			number = port.ContainerPort
		}
		if number > 0 {
			ports = append(ports, v1alpha1.ServerPortStatus{Name: port.Name, Port: number, Protocol: port.Protocol.Transport()})
		}
	}
	return ports
}

// Of are a Pod's host ports, in the order of spec.ports; 0 where there is none.
func Of(s *v1alpha1.Server, pod *corev1.Pod) []int32 {
	numbers := make([]int32, len(s.Spec.Ports))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name != gamepod.ContainerOf(s, pod) {
			continue
		}
		used := make([]bool, len(c.Ports))
		for k, have := range c.Ports {
			used[k] = have.HostPort != 0 && slices.Contains(templatePorts(s), have)
		}
		for j, port := range s.Spec.Ports {
			for k, have := range c.Ports {
				if !used[k] && isPort(port, have) {
					numbers[j], used[k] = have.HostPort, true
					break
				}
			}
		}
	}
	return numbers
}

// templatePorts are the ports that the template gives the game's container itself.
func templatePorts(s *v1alpha1.Server) []corev1.ContainerPort {
	for _, c := range s.Spec.Template.Spec.Containers {
		if c.Name == gamepod.Container(s) {
			return c.Ports
		}
	}
	return nil
}

// isPort reports whether a port of the game's container is a Server's. The number tells it, where
// there is one: the template may have a port of the same name, and then ours has none.
func isPort(port v1alpha1.ServerPort, have corev1.ContainerPort) bool {
	if transport := port.Protocol.Transports()[0]; cmp.Or(have.Protocol, corev1.ProtocolTCP) != transport {
		return false
	}
	if port.Expose != v1alpha1.ExposePassthrough {
		return have.ContainerPort == port.ContainerPort
	}
	return have.HostPort != 0 && have.HostPort == have.ContainerPort && (have.Name == port.Name || have.Name == "")
}

// Awaited reports whether, by the scheduler's message, a Pod waits for a host port.
func Awaited(why string) bool {
	return strings.Contains(why, "free ports for the requested pod ports")
}
