package target

import (
	"testing"

	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestAWakeWantsAsManyAsBeforeOnlyFromZero(t *testing.T) {
	es := fixture.Lobby("", fixture.T0)
	es.Status.ReplicasBeforeSleep = 5
	if got, want := Wanted(es), (Replicas{AtLeast: 1, FromZero: 5, AsBefore: true}); got != want {
		t.Errorf("wanted = %+v, want %+v", got, want)
	}
	es.Spec.MinReplicas = ptr.To[int32](3)
	if got, want := Wanted(es), (Replicas{AtLeast: 3, FromZero: 3}); got != want {
		t.Errorf("wanted with minReplicas = %+v, want %+v", got, want)
	}
	// Whatever was there before: its scale takes no more.
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Server", Name: "lobby"}
	if got, want := Wanted(es), (Replicas{AtLeast: 1, FromZero: 1}); got != want {
		t.Errorf("wanted of a Server = %+v, want %+v", got, want)
	}
	if got, want := Wanted(fixture.Lobby("", fixture.T0)), (Replicas{AtLeast: 1, FromZero: 1, AsBefore: true}); got != want {
		t.Errorf("wanted the first time = %+v, want %+v", got, want)
	}
}
