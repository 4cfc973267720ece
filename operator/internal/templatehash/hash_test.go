package templatehash

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A hash is compared with one that another version of the operator wrote: it must not
// change with the libraries, or all GameTypes would be rolled out anew. Earlier versions had the API server
// store the defaults: whether they are there, or were taken out by whoever replaced the object, is the same.
func TestATemplatesHashStaysTheSame(t *testing.T) {
	template := v1alpha1.ServerTemplate{}
	template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1", Env: []corev1.EnvVar{{Name: "A"}}}}
	template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP}}
	const golden = "7e6c27863e2f3868abca52545acc6b6c" // of the JSON with its keys in order, and the defaults that were stored
	same := func(what string, template v1alpha1.ServerTemplate) {
		t.Helper()
		if got := Of(template); got != golden {
			t.Errorf("%s: the hash is %s, want %s", what, got, golden)
		}
	}
	same("without defaults", template)
	stored := *template.DeepCopy()
	stored.Spec.Readiness, stored.Spec.Running, stored.Spec.Ports[0].Expose = "Auto", new(true), "None"
	stored.Spec.Health = v1alpha1.HealthSpec{
		InitialDelay: &metav1.Duration{Duration: 30 * time.Second}, Period: &metav1.Duration{Duration: 5 * time.Second}, FailureThreshold: 3,
	}
	stored.Spec.Deletion = v1alpha1.DeletionSpec{Unreported: "Allowed", Timeout: &metav1.Duration{}}
	same("with stored defaults", stored)
	stored.Spec.Replicas = new(int32(1))
	same("with replicas", stored)
	// What says nothing counts for nothing.
	template.Spec.Template.Labels = map[string]string{}
	template.Spec.Template.Spec.Volumes = []corev1.Volume{}
	same("with an empty map and an empty list", template)
	for what, change := range map[string]func(*v1alpha1.ServerTemplate){
		"another image":    func(t *v1alpha1.ServerTemplate) { t.Spec.Template.Spec.Containers[0].Image = "game:2" },
		"no default":       func(t *v1alpha1.ServerTemplate) { t.Spec.Health.FailureThreshold = 4 },
		"another period":   func(t *v1alpha1.ServerTemplate) { t.Spec.Health.Period = &metav1.Duration{Duration: time.Second} },
		"a port on a node": func(t *v1alpha1.ServerTemplate) { t.Spec.Ports[0].Expose = "HostPort" },
		"a stop":           func(t *v1alpha1.ServerTemplate) { t.Spec.Running = new(false) },
	} {
		changed := *template.DeepCopy()
		if change(&changed); Of(changed) == golden {
			t.Errorf("%s: it has the same hash", what)
		}
	}
}

// What a disk began with is read once: where it is said anew, no Server is made anew.
func TestWhereADiskBeganMakesNoRevision(t *testing.T) {
	spec := v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world"}}}
	from := *spec.DeepCopy()
	from.Storage[0].From = &v1alpha1.DiskSource{Server: "survival"}
	if OfAny(RevisionSpec(spec)) != OfAny(RevisionSpec(from)) {
		t.Error("it makes another revision")
	}
	if from.Storage[0].From == nil {
		t.Error("the spec itself was changed")
	}
}

// What is remembered is the hash of one template, and another one has its own.
func TestARememberedHashIsThatOfItsTemplate(t *testing.T) {
	var l Last
	var template v1alpha1.ServerTemplate
	for _, name := range []string{"a", "a", "b", "a"} {
		template.Spec.GameContainer = name
		if got, want := l.Of(template), Of(template); got != want {
			t.Errorf("template %s has the hash %s, want %s", name, got, want)
		}
	}
}
