package route

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A game may say nothing of itself, and answer no probe. Its pod is ready once kubelet has probed
// its sidecar, whether the game listens or not. Held clients needn't wait for that: once the sidecar
// is there, so that nobody plays uncounted, a connection shows when the game listens.

// silentPod is the UID of the pod whose sidecar has reported, and whose game says nothing of itself;
// empty: there is none, or kubelet waits for more than the sidecar.
func silentPod(s *v1alpha1.Server) types.UID {
	if waits(&s.Spec.Template.Spec) {
		return ""
	}
	if game := s.Status.Game; game != nil && game.State == v1alpha1.GameReady && !game.Reported {
		return types.UID(game.PodUID)
	}
	return ""
}

// setSilent takes in which of a Server's pods has a game that says nothing of itself. It is called
// with the table's lock.
func (t *Table) setSilent(name types.NamespacedName, s *v1alpha1.Server, pod types.UID) {
	if t.silent[name] == pod {
		return
	}
	if pod == "" {
		delete(t.silent, name)
	} else {
		t.silent[name] = pod
	}
	for _, of := range targetsOf(s) {
		t.show(slices.DeleteFunc(slices.Clone(t.targets[of]), func(route types.UID) bool { return !t.routes[route].dialsUnasked() }))
	}
}

// dialsUnasked reports whether it matters for a route that a game says nothing of itself: once the
// service is awake kubelet's word counts alone.
func (r *Route) dialsUnasked() bool { return r.Phase != v1alpha1.PhaseAwake }

// waits reports whether a template's pods are ready only once more than their sidecar is.
func waits(spec *corev1.PodSpec) bool {
	probed := func(c corev1.Container) bool { return c.ReadinessProbe != nil }
	return len(spec.ReadinessGates) > 0 || slices.ContainsFunc(spec.Containers, probed) || slices.ContainsFunc(spec.InitContainers, probed)
}
