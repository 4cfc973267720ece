package route

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// It is for a service that sleeps: who waits for one that somebody woke waits on.
func TestAServiceIsDownWhileItIsKeptAsleep(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 27, 18, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Time{"2026-11-27T19:00:00+01:00": until, "tonight": {}, "": {}} {
		for phase, sleeps := range map[v1alpha1.Phase]bool{
			"": true, v1alpha1.PhaseAsleep: true, v1alpha1.PhaseFallingAsleep: true, v1alpha1.PhaseWaking: false, v1alpha1.PhaseAwake: false,
		} {
			es := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolMinecraft, 10001)
			es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: value, "kubectl.kubernetes.io/last-applied-configuration": "{}"}
			es.Status.Phase, es.Status.Front = phase, &v1alpha1.FrontStatus{}
			stripped, err := stripService(es.ElasticService)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(es.Annotations); n != 1 {
				t.Errorf("%d annotations are kept", n)
			}
			r := Build(stripped.(*v1alpha1.ElasticService))
			want := want
			if !sleeps {
				want = time.Time{}
			}
			if got, front := r.Ports[0].Guard.DownUntil, r.Front.Guard.DownUntil; !got.Equal(want) || !front.Equal(want) {
				t.Errorf("%q and %q: it is down until %s, at the front %s, want %s", phase, value, got, front, want)
			}
		}
	}
}
