package route

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Held players needn't wait for kubelet to probe the sidecar of a game that says nothing of itself.
// They wait for the sidecar where somebody counts them.
func TestWhoseGameIsDialledUnasked(t *testing.T) {
	t.Parallel()
	uncounted := func(s *v1alpha1.Server) { s.Status.Game = nil }
	counted := func(s *v1alpha1.Server) {
		s.Spec.Players = &v1alpha1.PlayersSpec{Capacity: 8}
		s.Status.Game = nil
	}
	reported := func(change func(*v1alpha1.GameStatus)) func(*v1alpha1.Server) {
		return func(s *v1alpha1.Server) {
			counted(s)
			s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "pod-1", Since: &metav1.Time{Time: epoch}}
			change(s.Status.Game)
		}
	}
	with := func(change, more func(*v1alpha1.Server)) func(*v1alpha1.Server) {
		return func(s *v1alpha1.Server) {
			change(s)
			more(s)
		}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.Server)
		want   bool
	}{
		"whose players nobody counts": {uncounted, true},
		"that waits for the SDK":      {with(uncounted, func(s *v1alpha1.Server) { s.Spec.Readiness = v1alpha1.ServerReadinessSDK }), false},
		"that answers probes":         {with(uncounted, func(s *v1alpha1.Server) { s.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", Protocol: "minecraft"}} }), false},
		"that kubelet probes": {with(uncounted, func(s *v1alpha1.Server) {
			s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", ReadinessProbe: &corev1.Probe{}}}
		}), false},
		"that is uncounted and says something": {with(uncounted, func(s *v1alpha1.Server) {
			s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameUnhealthy, PodUID: "pod-1", Reported: true}
		}), false},
		"whose Pod before said something": {with(uncounted, func(s *v1alpha1.Server) {
			s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameUnhealthy, PodUID: "pod-0", Reported: true}
		}), true},
		"whose sidecar isn't there yet":              {counted, false},
		"whose sidecar is there":                     {reported(func(*v1alpha1.GameStatus) {}), true},
		"whose sidecar was there, in its Pod before": {reported(func(g *v1alpha1.GameStatus) { g.PodUID = "pod-0" }), false},
		"that starts":                                {reported(func(g *v1alpha1.GameStatus) { g.State = v1alpha1.GameStarting }), false},
		"that is broken":                             {reported(func(g *v1alpha1.GameStatus) { g.State = v1alpha1.GameUnhealthy }), false},
		"that shuts down":                            {reported(func(g *v1alpha1.GameStatus) { g.State = v1alpha1.GameShutdown }), false},
	} {
		w := newWorld(t)
		w.lobby.Status.Phase = v1alpha1.PhaseWaking
		w.table.SetService(w.lobby)
		w.endpoint(false)
		w.game(c.change)
		w.wantUnasked("of a game "+name, c.want)
	}
	w := newWorld(t)
	w.lobby.Status.Phase = v1alpha1.PhaseWaking
	w.table.SetService(w.lobby)
	w.game(uncounted)
	w.endpoint(false)
	w.wantUnasked("with an address that comes later", true)
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
