package route

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestNoClientWakesAServiceThatOnlyItsOwnerWakes(t *testing.T) {
	for phase, sleeps := range map[v1alpha1.Phase]bool{
		"": true, v1alpha1.PhaseAsleep: true, v1alpha1.PhaseFallingAsleep: true, v1alpha1.PhaseWaking: false, v1alpha1.PhaseAwake: false,
	} {
		for when, never := range map[v1alpha1.WakeOn]bool{v1alpha1.WakeOnNever: true, v1alpha1.WakeOnLogin: false, v1alpha1.WakeOnConnect: false} {
			es := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolMinecraft, 10001)
			es.Spec.Wake, es.Status.Phase = &v1alpha1.Wake{When: when, PerServiceRate: 3}, phase
			es.Status.Front = &v1alpha1.FrontStatus{}
			r := Build(es.ElasticService)
			port := r.Ports[0]
			if want := sleeps && never; port.Guard.Nobody != want || r.Front.Guard.Nobody != want || port.Players.May("Anna", "") == want {
				t.Errorf("%q, wake when %s: nobody wakes it: %t, at the front %t; a player may: %t; want %t, %t, %t",
					phase, when, port.Guard.Nobody, r.Front.Guard.Nobody, port.Players.May("Anna", ""), want, want, !want)
			}
		}
	}
}
