package planner

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
)

// restoreRetry is when to look again whether a Pod still waits for its key.
const restoreRetry = time.Minute

// configError is kubelet's reason for a container that lacks a Secret of its environment.
const configError = "CreateContainerConfigError"

// lacksKey is the ID of the key whose Secret a Pod waits for; empty: it waits for none.
func lacksKey(pod *corev1.Pod) string {
	if c := gamepod.SidecarStatus(pod); c != nil && c.State.Waiting != nil && c.State.Waiting.Reason == configError {
		return pod.Annotations[wellknown.ReportKeyAnnotation]
	}
	return ""
}

// lacksCode reports whether a Pod may wait for the Secret with its code.
func lacksCode(s *v1alpha1.Server, pod *corev1.Pod) bool {
	if s.Annotations[wellknown.GameAPIAnnotation] != "true" || pod.Annotations[wellknown.GameAPIAnnotation] != "true" {
		return false
	}
	return waitsForConfig(gamepod.SidecarStatus(pod)) || waitsForConfig(gamepod.Status(s, pod))
}

func waitsForConfig(c *corev1.ContainerStatus) bool {
	return c != nil && c.State.Waiting != nil && c.State.Waiting.Reason == configError
}
