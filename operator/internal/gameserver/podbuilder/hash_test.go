package podbuilder

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A hash is compared with one that another version of the operator wrote on the Pod: no Server starts again
// because of an upgrade, nor because somebody replaces it without the defaults that the API server stored
// with it once.
func TestAPodsHashStaysTheSame(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.ServerSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
		Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP}},
		Players:  &v1alpha1.PlayersSpec{Capacity: 16},
	}
	const golden = "b52353dee86af1adc47c71b9004f1b52"
	if got := Hash(&spec); got != golden {
		t.Errorf("without defaults it is %s, want %s", got, golden)
	}
	stored := *spec.DeepCopy()
	stored.Readiness, stored.Running, stored.Replicas, stored.Ports[0].Expose = "Auto", new(true), new(int32(1)), "None"
	stored.Health = v1alpha1.HealthSpec{
		InitialDelay: &metav1.Duration{Duration: 30 * time.Second}, Period: &metav1.Duration{Duration: 5 * time.Second}, FailureThreshold: 3,
	}
	stored.Deletion = v1alpha1.DeletionSpec{Unreported: "Allowed", Timeout: &metav1.Duration{}}
	if got := Hash(&stored); got != golden {
		t.Errorf("with stored defaults it is %s, want %s", got, golden)
	}
	for what, change := range map[string]func(*v1alpha1.ServerSpec){
		"another image":    func(s *v1alpha1.ServerSpec) { s.Template.Spec.Containers[0].Image = "game:2" },
		"no default":       func(s *v1alpha1.ServerSpec) { s.Health.FailureThreshold = 4 },
		"readiness":        func(s *v1alpha1.ServerSpec) { s.Readiness = "SDK" },
		"a port on a node": func(s *v1alpha1.ServerSpec) { s.Ports[0].Expose = "HostPort" },
	} {
		changed := *spec.DeepCopy()
		if change(&changed); Hash(&changed) == golden || MadeFrom(golden, &changed) {
			t.Errorf("%s: it has the same hash", what)
		}
	}
}

// An earlier version may have made the Pod while the API server didn't fill in the defaults any more.
func TestAPodThatAnEarlierVersionMadeOfASpecWithoutDefaultsIsOfIt(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.ServerSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
		Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP}},
		Players:  &v1alpha1.PlayersSpec{Capacity: 16},
	}
	const earlier = "aed6083567f8f68c989eef2186af0659"
	if !MadeFrom(Hash(&spec), &spec) || !MadeFrom(earlier, &spec) || MadeFrom("another", &spec) {
		t.Error("it isn't known as what it was made from, or another is")
	}
}
