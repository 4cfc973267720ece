// Package gamepod finds the game's container in a Server's Pod, and its state. An annotation of
// the Pod names it, because its Server's spec may have changed since.
package gamepod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// ContainerAnnotation is an annotation of a Server's Pod; its value is the name of the game's
// container.
const ContainerAnnotation = "dormouse.dev/game-container"

// Container is the name of the game's container in a Pod that would be created from the
// Server's current spec.
func Container(s *v1alpha1.Server) string {
	if s.Spec.GameContainer != "" || len(s.Spec.Template.Spec.Containers) == 0 {
		return s.Spec.GameContainer
	}
	return s.Spec.Template.Spec.Containers[0].Name
}

// ContainerOf is the name of the game's container in a Pod.
func ContainerOf(s *v1alpha1.Server, pod *corev1.Pod) string {
	if name := pod.Annotations[ContainerAnnotation]; name != "" {
		return name
	}
	return Container(s)
}

// Status is the status of the game's container; nil while there is none.
func Status(s *v1alpha1.Server, pod *corev1.Pod) *corev1.ContainerStatus {
	name := ContainerOf(s, pod)
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// Running reports whether the game's process runs.
func Running(s *v1alpha1.Server, pod *corev1.Pod) bool {
	c := Status(s, pod)
	return c != nil && c.State.Running != nil
}

// Ready reports whether the game's own container is ready, whatever its sidecar reports.
func Ready(s *v1alpha1.Server, pod *corev1.Pod) bool {
	c := Status(s, pod)
	return c != nil && c.Ready
}

// SidecarStatus is the status of the Pod's sidecar, which is an init container or an ordinary one;
// nil while there is none.
func SidecarStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == wellknown.SidecarContainer {
				return &list[i]
			}
		}
	}
	return nil
}

// SidecarRunning reports whether the Pod's sidecar runs. Its reports are then newer than
// kubelet's.
func SidecarRunning(pod *corev1.Pod) bool {
	c := SidecarStatus(pod)
	return c != nil && c.State.Running != nil
}

// Report is what the sidecar of this very Pod has reported; nil if nothing.
func Report(s *v1alpha1.Server, pod *corev1.Pod) *v1alpha1.GameStatus {
	if pod == nil || s.Status.Game == nil || s.Status.Game.PodUID != string(pod.UID) {
		return nil
	}
	return s.Status.Game
}

// Probe is the spec's player probe. Where it names none, a port's protocol tells how to ask the
// game; nil: the game isn't asked.
func Probe(s *v1alpha1.ServerSpec) *v1alpha1.PlayersProbe {
	if s.Players != nil && s.Players.Probe != nil {
		if s.Players.Probe.Type == v1alpha1.ProbeNone {
			return nil
		}
		return s.Players.Probe
	}
	for _, p := range s.Ports {
		switch t := v1alpha1.ProbeType(p.Protocol); t {
		case v1alpha1.ProbeMinecraft, v1alpha1.ProbeBedrock, v1alpha1.ProbeSource, v1alpha1.ProbeQuake3:
			return &v1alpha1.PlayersProbe{Type: t, Port: p.Name}
		case v1alpha1.ProbeNone:
		}
	}
	return nil
}

// PortName is the name of a Server's port in its Pod, unless the template's own ports leave it none.
// A TCPUDP port has two names.
func PortName(p *v1alpha1.ServerPort, transport corev1.Protocol) string {
	if p.Protocol.Transport() != v1alpha1.ServerProtocolTCPUDP || transport == corev1.ProtocolTCP {
		return p.Name
	}
	const longest = 15 - len("-udp")
	return strings.TrimRight(p.Name[:min(len(p.Name), longest)], "-") + "-udp"
}

// DeletionAllowed reports whether a Server's game may be ended by what its status says, or will say of a
// new one: the controller leaves that unwritten while the Pod starts.
func DeletionAllowed(s *v1alpha1.Server) bool {
	if s.Status.State == "" && s.Status.Game == nil {
		return s.Spec.Deletion.Unreported != v1alpha1.DeletionDenied
	}
	return s.Status.DeletionAllowed
}
