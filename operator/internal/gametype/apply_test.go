package gametype

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

func templated(cpu string) *v1alpha1.GameType {
	gt := gameTypeOf(1)
	gt.Spec.Template.Metadata.Labels = map[string]string{"mode": "duel"}
	gt.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "game", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}
	return gt
}

func TestTheLabelReachesServersAndPods(t *testing.T) {
	gt := templated("1")
	f, err := desiredFleet(gt, plan{first: 2, number: 7})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"mode": "duel", wellknown.GameTypeLabel: "duel"}
	if diff := cmp.Diff(want, f.Spec.Template.Metadata.Labels); diff != "" {
		t.Errorf("the Servers' labels (-want +got):\n%s", diff)
	}
	if f.Spec.Template.Spec.Template.Labels[wellknown.GameTypeLabel] != "duel" || f.Labels[wellknown.GameTypeLabel] != "duel" {
		t.Errorf("the Pods' labels are %v, the Fleet's %v", f.Spec.Template.Spec.Template.Labels, f.Labels)
	}
	if len(gt.Spec.Template.Metadata.Labels) != 1 {
		t.Error("the GameType itself was changed")
	}
}

// A template that means the same is the same revision, however it is written.
func TestAFleetIsFoundByWhatItsTemplateMeans(t *testing.T) {
	f, err := desiredFleet(templated("1"), plan{first: 2, number: 7})
	if err != nil {
		t.Fatal(err)
	}
	same, other := templated("1000m"), templated("2")
	same.Spec.Template.Metadata.Annotations = map[string]string{}
	if !observe(same, new(desiredTemplate(same)), f).current {
		t.Error("1000m isn't taken for 1")
	}
	if observe(other, new(desiredTemplate(other)), f).current {
		t.Error("2 is taken for 1")
	}
}

func TestAFleetsNameFitsAndChangesWithCollisions(t *testing.T) {
	gt := templated("1")
	gt.Name = strings.Repeat("a", 39)
	names := map[string]bool{}
	for collisions := range int32(4) {
		gt.Status.CollisionCount = &collisions
		f, err := desiredFleet(gt, plan{first: 1, number: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Name) > 50 || len(validation.IsDNS1123Label(f.Name)) > 0 {
			t.Errorf("%s is no good name for a Fleet", f.Name)
		}
		names[f.Name] = true
	}
	if len(names) != 4 {
		t.Errorf("the names are %v", names)
	}
}
