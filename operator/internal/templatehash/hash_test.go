package templatehash

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A hash is compared with one that another version of the operator wrote: it must not
// change with the libraries, or all GameTypes would be rolled out anew.
func TestATemplatesHashStaysTheSame(t *testing.T) {
	template := v1alpha1.ServerTemplate{}
	template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1", Env: []corev1.EnvVar{{Name: "A"}}}}
	template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP}}
	const golden = "96077c88cec4350a950cff3a7f53151d" // of the JSON with its keys in order
	if got := Of(template); got != golden {
		t.Errorf("the hash is %s, want %s", got, golden)
	}
	// What says nothing counts for nothing.
	template.Spec.Template.Labels = map[string]string{}
	template.Spec.Template.Spec.Volumes = []corev1.Volume{}
	if got := Of(template); got != golden {
		t.Errorf("with an empty map and an empty list the hash is %s", got)
	}
	template.Spec.Template.Spec.Containers[0].Image = "game:2"
	if Of(template) == golden {
		t.Error("another image has the same hash")
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
