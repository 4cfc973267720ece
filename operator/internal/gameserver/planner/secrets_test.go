package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/wellknown"
)

// A Pod whose Secret somebody has deleted gets it again.
func TestAKeyThatIsMissingIsMadeAgain(t *testing.T) {
	t.Parallel()
	waiting := func(container, reason string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{wellknown.ReportKeyAnnotation: "abc"}}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}
		return pod
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"the sidecar waits for it": {waiting(wellknown.SidecarContainer, "CreateContainerConfigError"), "abc"},
		"behind the game, too": {func() *corev1.Pod {
			p := waiting(wellknown.SidecarContainer, "CreateContainerConfigError")
			p.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "game"}}, p.Status.InitContainerStatuses...)
			p.Status.InitContainerStatuses = nil
			return p
		}(), "abc"},
		"it waits for an image":   {waiting(wellknown.SidecarContainer, "ImagePullBackOff"), ""},
		"another container waits": {waiting("fetch", "CreateContainerConfigError"), ""},
		"a Pod that has no such key": {func() *corev1.Pod {
			p := waiting(wellknown.SidecarContainer, "CreateContainerConfigError")
			p.Annotations = nil
			return p
		}(), ""},
	} {
		if got := lacksKey(c.pod); got != c.want {
			t.Errorf("%s: key %q is to be made again, want %q", name, got, c.want)
		}
	}
}
