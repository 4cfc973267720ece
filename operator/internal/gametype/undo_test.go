package gametype

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// versions is a GameType of a version, and its Fleets of the versions 1 to 3.
func versions(t *testing.T, number string) (*v1alpha1.GameType, []v1alpha1.Fleet) {
	t.Helper()
	gt := gameTypeOf(2)
	set := func(version string) {
		gt.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:" + version}}
	}
	var fleets []v1alpha1.Fleet
	for i, version := range []string{"1", "2", "3"} {
		set(version)
		f, err := desiredFleet(gt, plan{first: 0, number: int64(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		f.Status.ObservedGeneration = f.Generation
		fleets = append(fleets, *f)
	}
	set(number)
	return gt, fleets
}

// currentOf is the number of the revision that a GameType's Servers are of.
func currentOf(gt *v1alpha1.GameType, list []v1alpha1.Fleet) int64 {
	acting, _ := undone(gt, list)
	seen := make([]fleet, len(list))
	for i := range list {
		seen[i] = observe(acting, new(desiredTemplate(acting)), &list[i])
	}
	if p := makePlan(t0, &acting.Spec, seen, nil, 0); p.current != nil {
		return p.current.number
	}
	return 0
}

func TestAnUpdateIsUndoneByName(t *testing.T) {
	gt, fleets := versions(t, "3")
	if got := currentOf(gt, fleets); got != 3 {
		t.Fatalf("without the annotation revision %d is current, want 3", got)
	}
	gt.Annotations = map[string]string{wellknown.UndoToAnnotation: revisionName(gt, fleets[0].Name)}
	if got := currentOf(gt, fleets); got != 1 {
		t.Errorf("with the annotation revision %d is current, want 1", got)
	}
	acting, found := undone(gt, fleets)
	if image := acting.Spec.Template.Spec.Template.Spec.Containers[0].Image; !found || image != "game:1" {
		t.Errorf("its Servers have image %s, want that of revision 1", image)
	}
	if image := gt.Spec.Template.Spec.Template.Spec.Containers[0].Image; image != "game:3" {
		t.Errorf("the owner's template was changed to %s", image)
	}
	// A new template changes nothing until the annotation is taken off.
	gt.Spec.Template.Spec.Template.Spec.Containers[0].Image = "game:4"
	if got := currentOf(gt, fleets); got != 1 {
		t.Errorf("with another template revision %d is current, want 1", got)
	}
	delete(gt.Annotations, wellknown.UndoToAnnotation)
	if got := currentOf(gt, fleets); got != 0 {
		t.Errorf("without the annotation revision %d is current, want a new one", got)
	}
}

func TestAnUnknownRevisionIsSaidAndChangesNothing(t *testing.T) {
	gt, fleets := versions(t, "2")
	gt.Annotations = map[string]string{wellknown.UndoToAnnotation: "nonsense"}
	if got := currentOf(gt, fleets); got != 2 {
		t.Errorf("revision %d is current, want 2", got)
	}
	now := metav1.Now()
	fleets[0].DeletionTimestamp = &now
	gt.Annotations[wellknown.UndoToAnnotation] = revisionName(gt, fleets[0].Name)
	if got := currentOf(gt, fleets); got != 2 {
		t.Errorf("with a revision that is being deleted revision %d is current, want 2", got)
	}
	seen := []fleet{{name: "duel-b"}, {name: "duel-a"}}
	gt.Annotations[wellknown.UndoToAnnotation] = "c"
	const want = " There is no revision c, which the annotation dormouse.dev/undo-to names: there are a, b."
	if got := undoing(gt, seen, false); got != want {
		t.Errorf("it is said\n%q, want\n%q", got, want)
	}
	p := plan{undoing: want}
	if c := updated(&metav1.Condition{Reason: reasons.Updated}, &p); c.Status != metav1.ConditionFalse || c.Reason != reasons.RevisionUnknown {
		t.Errorf("Updated is %s %s, want False", c.Status, c.Reason)
	}
}

func TestWhatIsUndoneIsSaid(t *testing.T) {
	gt := gameTypeOf(2)
	gt.Annotations = map[string]string{wellknown.UndoToAnnotation: "b"}
	fleets := []fleet{newest(2, 2)}
	for range 2 { // It has taken over by the second time.
		p := makePlan(t0, &gt.Spec, fleets, nil, 0)
		p.undone, p.undoing = true, undoing(gt, fleets, true)
		setStatus(t0, gt, fleets, &p, outcome{}, services{})
	}
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionTrue, "Undone",
		"All Servers that take players are of revision 2. The annotation dormouse.dev/undo-to keeps revision b; take it off for the template to be used.")
	wantCondition(t, gt, conditions.Updated, metav1.ConditionTrue, "Undone", "All Servers that take players are of revision 2.")
}

// A restart is an update to the same template, and one that is undone stays so.
func TestARestartIsARevision(t *testing.T) {
	gt, fleets := versions(t, "3")
	gt.Annotations = map[string]string{wellknown.RestartedAtAnnotation: "2026-11-01T12:00:00Z"}
	if got := currentOf(gt, fleets); got != 0 {
		t.Errorf("after a restart revision %d is current, want a new one", got)
	}
	f, err := desiredFleet(gt, plan{first: 2, number: 4})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Spec.Template.Metadata.Annotations[wellknown.RestartedAtAnnotation]; got != "2026-11-01T12:00:00Z" {
		t.Errorf("its Servers say %q of the restart", got)
	}
	fleets = append(fleets, *f)
	if got := currentOf(gt, fleets); got != 4 {
		t.Errorf("revision %d is current, want 4", got)
	}
	gt.Annotations[wellknown.UndoToAnnotation] = revisionName(gt, fleets[2].Name)
	if got := currentOf(gt, fleets); got != 3 {
		t.Errorf("when the restart is undone revision %d is current, want 3", got)
	}
	gt.Annotations[wellknown.UndoToAnnotation] = revisionName(gt, f.Name)
	if got := currentOf(gt, fleets); got != 4 {
		t.Errorf("when it is undone to the restart revision %d is current, want 4", got)
	}
}

// What a GameType says of its ports beyond what makes a revision holds for an older one, too.
func TestAnUndoneRevisionKeepsPortSettings(t *testing.T) {
	gt, fleets := versions(t, "3")
	for i := range fleets {
		fleets[i].Spec.Template.Spec.Ports = []v1alpha1.ServerPort{
			{Name: "game", ContainerPort: 1, Protocol: v1alpha1.ServerProtocolTCP}, {Name: "old", ContainerPort: 3},
		}
	}
	asleep := &v1alpha1.Asleep{MOTD: "Zzz"}
	gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 2, Protocol: "minecraft", Asleep: asleep}}
	gt.Annotations = map[string]string{wellknown.UndoToAnnotation: revisionName(gt, fleets[0].Name)}
	acting, _ := undone(gt, fleets)
	want := []v1alpha1.ServerPort{{Name: "game", ContainerPort: 1, Protocol: "minecraft", Asleep: asleep}, {Name: "old", ContainerPort: 3}}
	if diff := cmp.Diff(want, acting.Spec.Template.Spec.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if fleets[0].Spec.Template.Spec.Ports[0].Asleep != nil {
		t.Error("the cached Fleet was changed")
	}
}
