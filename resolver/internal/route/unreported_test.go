package route

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Held players needn't wait for kubelet to probe the sidecar of a game that says nothing of itself.
// They wait for the sidecar, which counts them.
func TestWhoseGameIsDialledUnasked(t *testing.T) {
	t.Parallel()
	unasked := func(change func(*v1alpha1.GameStatus), pods ...func(*corev1.PodSpec)) func(*v1alpha1.Server) {
		return func(s *v1alpha1.Server) {
			s.Status.Game.Reported = false
			change(s.Status.Game)
			for _, f := range pods {
				f(&s.Spec.Template.Spec)
			}
		}
	}
	waking := func() *world {
		w := newWorld(t)
		w.lobby.Status.Phase = v1alpha1.PhaseWaking
		w.table.SetService(w.lobby)
		return w
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.Server)
		want   bool
	}{
		"whose sidecar is there":                     {unasked(func(*v1alpha1.GameStatus) {}), true},
		"whose sidecar isn't there":                  {func(s *v1alpha1.Server) { s.Status.Game = nil }, false},
		"whose sidecar was there, in its Pod before": {unasked(func(g *v1alpha1.GameStatus) { g.PodUID = "pod-0" }), false},
		"whose sidecar tells no Pod":                 {unasked(func(g *v1alpha1.GameStatus) { g.PodUID = "" }), false},
		"that starts":                                {unasked(func(g *v1alpha1.GameStatus) { g.State = v1alpha1.GameStarting }), false},
		"that is broken":                             {unasked(func(g *v1alpha1.GameStatus) { g.State = v1alpha1.GameUnhealthy }), false},
		"that shuts down":                            {unasked(func(g *v1alpha1.GameStatus) { g.State = v1alpha1.GameShutdown }), false},
		"that kubelet probes, too": {unasked(func(*v1alpha1.GameStatus) {}, func(s *corev1.PodSpec) {
			s.Containers = []corev1.Container{{Name: "game"}, {Name: "map", ReadinessProbe: &corev1.Probe{}}}
		}), false},
		"beside a sidecar of its own that is probed": {unasked(func(*v1alpha1.GameStatus) {}, func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "vpn", ReadinessProbe: &corev1.Probe{}}}
		}), false},
		"that somebody else has to release": {unasked(func(*v1alpha1.GameStatus) {}, func(s *corev1.PodSpec) {
			s.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/released"}}
		}), false},
		"of another GameType": {func(s *v1alpha1.Server) { s.Name, s.Status.Game.Reported = "arena-0", false }, false},
	} {
		w := waking()
		w.endpoint(false)
		w.game(c.change)
		w.wantUnasked("of a game "+name, c.want)
	}
	w, silent := waking(), unasked(func(*v1alpha1.GameStatus) {})
	w.game(silent)
	w.endpoint(false)
	w.wantUnasked("with an address that comes later", true)
	w.game(nothing)
	w.wantUnasked("of a game that has said that it takes players", false)
	w.game(silent)
	w.endpoint(true)
	w.wantUnasked("once kubelet has found it ready", false)
	w.endpoint(false)
	w.lobby.Status.Phase = v1alpha1.PhaseAwake
	w.table.SetService(w.lobby)
	w.wantUnasked("of a service that is awake, whose node is lost perhaps", false)
	w.table.DeleteServer(serverOf(wellknown.GameTypeLabel))
	if len(w.table.silent) != 0 {
		t.Error("something is left of a Server that is gone")
	}
}

func (w *world) wantUnasked(when string, want bool) {
	w.t.Helper()
	if got := w.sink.routes["u1"].Ports[0].Backends[0]; got.Unasked != want || got.Unasked && got.Serving {
		w.t.Errorf("%s its pod is dialled unasked: %t, want %t", when, got.Unasked, want)
	}
}
