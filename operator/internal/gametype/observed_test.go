package gametype

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

func TestWhatAFleetHasNotLetGoOfCounts(t *testing.T) {
	tests := map[string]struct {
		f    fleet
		want int32
	}{
		"as many as it is to have":              {fleet{desired: 3, active: 3}, 3},
		"some are still to come":                {fleet{desired: 3, active: 1}, 3},
		"some are still to go":                  {fleet{desired: 1, active: 3}, 3},
		"all that are left are Allocated":       {fleet{desired: 0, active: 3, allocated: 3}, 0},
		"more are Allocated than it is to have": {fleet{desired: 2, active: 3, allocated: 3}, 2},
		"one to go beside an Allocated one":     {fleet{desired: 4, active: 5, allocated: 1}, 5},
	}
	for name, test := range tests {
		if got := test.f.counted(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// The last revision that has had a Ready Server is kept whatever the history's limit, as long as no
// later one has.
func TestTheRevisionThatAWakeMayNeedIsKept(t *testing.T) {
	spec := &v1alpha1.GameTypeSpec{Replicas: new(int32(0)), RevisionHistoryLimit: new(int32(0))}
	fleets := []fleet{
		{name: "a", uid: "a", number: 1, observed: true, everReady: true},
		{name: "b", uid: "b", number: 2, observed: true},
		{name: "c", uid: "c", number: 3, observed: true, current: true},
	}
	if p := makePlan(t0, spec, fleets, nil, 3); len(p.remove) != 1 || p.remove[0].name != "b" {
		t.Errorf("forgotten are %+v, want b alone", p.remove)
	}
	fleets[2].everReady = true
	if p := makePlan(t0, spec, fleets, nil, 3); len(p.remove) != 2 {
		t.Errorf("once the newest has been Ready %d are forgotten, want both", len(p.remove))
	}
}

// Earlier versions had the API server store defaults with a GameType and its Fleets. A manifest that is
// applied anew takes them out of the GameType, or says them, and neither is an update; nor where a webhook
// had changed what was stored.
func TestStoredDefaultsAreNoUpdate(t *testing.T) {
	plain := v1alpha1.ServerTemplate{}
	plain.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1"}}
	plain.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolUDP}}
	stored := *plain.DeepCopy()
	stored.Spec.Readiness, stored.Spec.Running, stored.Spec.Ports[0].Expose = v1alpha1.ServerReadinessAuto, new(true), v1alpha1.ExposeNone
	stored.Spec.Health = v1alpha1.HealthSpec{
		InitialDelay: &metav1.Duration{Duration: 30 * time.Second}, Period: &metav1.Duration{Duration: 5 * time.Second}, FailureThreshold: 3,
	}
	stored.Spec.Deletion = v1alpha1.DeletionSpec{Unreported: v1alpha1.DeletionAllowed, Timeout: &metav1.Duration{}}
	for name, c := range map[string]struct{ fleets, gameTypes v1alpha1.ServerTemplate }{
		"they are gone": {stored, plain},
		"they are said": {plain, stored},
	} {
		if !isCurrent(&c.gameTypes, c.fleets, sentTemplate{}) {
			t.Errorf("%s: it is an update", name)
		}
		mirrored := *c.fleets.DeepCopy()
		mirrored.Spec.Template.Spec.Containers[0].Image = "mirror.example/game:1"
		if !isCurrent(&c.gameTypes, mirrored, sentTemplate{sent: templatehash.Of(c.fleets), stored: templatehash.Of(mirrored)}) {
			t.Errorf("%s where a webhook changed the Fleet: it is an update", name)
		}
		changed := *c.gameTypes.DeepCopy()
		changed.Spec.Health.FailureThreshold = 4
		if isCurrent(&changed, c.fleets, sentTemplate{}) {
			t.Errorf("%s, and another is said: it is no update", name)
		}
	}
}
