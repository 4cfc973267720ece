// Package gamepod tells which container of a Server's Pod is the game, and how it
// does. The Pod says so itself: its Server's spec may have changed since.
package gamepod

import (
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// ContainerAnnotation is on a Server's Pod; its value is the name of the container
// that is the game.
const ContainerAnnotation = "dormouse.dev/game-container"

// Container is the name of the container that a Pod made from the Server's spec
// as it is now would have as its game.
func Container(s *v1alpha1.Server) string {
	if s.Spec.GameContainer != "" || len(s.Spec.Template.Spec.Containers) == 0 {
		return s.Spec.GameContainer
	}
	return s.Spec.Template.Spec.Containers[0].Name
}

// ContainerOf is the name of the container of a Pod that is the game.
func ContainerOf(s *v1alpha1.Server, pod *corev1.Pod) string {
	if name := pod.Annotations[ContainerAnnotation]; name != "" {
		return name
	}
	return Container(s)
}

// Status is how the game's container does; nil while nothing is known of it.
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

// Ready reports whether the game's own container is ready, whatever its sidecar says.
func Ready(s *v1alpha1.Server, pod *corev1.Pod) bool {
	c := Status(s, pod)
	return c != nil && c.Ready
}

// SidecarRunning reports whether the Pod's sidecar runs, whose word is then newer than
// kubelet's.
func SidecarRunning(pod *corev1.Pod) bool {
	for _, c := range pod.Status.InitContainerStatuses {
		if c.Name == v1alpha1.SidecarContainer {
			return c.State.Running != nil
		}
	}
	return false
}
