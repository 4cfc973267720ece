package gametype_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

func TestAGameTypeMakesAFleetOfItsTemplate(t *testing.T) {
	w := newWorld(t, false)
	gt := w.create(func(gt *v1alpha1.GameType) { gt.Spec.ScaleDown.Order = v1alpha1.OldestFirst })
	f := w.of("game:1")
	if f == nil || len(w.all()) != 1 {
		t.Fatalf("the Fleets are %v", w.all())
	}
	label := f.Labels[wellknown.GameTypeLabel]
	if !metav1.IsControlledBy(f, gt) || label != game || f.Spec.Template.Metadata.Labels[wellknown.GameTypeLabel] != game ||
		f.Spec.Template.Spec.Template.Labels[wellknown.GameTypeLabel] != game {
		t.Errorf("it is labelled %q, its Servers %v and its Pods %v", label, f.Spec.Template.Metadata.Labels, f.Spec.Template.Spec.Template.Labels)
	}
	if !strings.HasPrefix(f.Name, game+"-") || *f.Spec.Replicas != 3 || f.Spec.ScaleDown.Order != v1alpha1.OldestFirst || f.Annotations[wellknown.RevisionAnnotation] != "1" {
		t.Errorf("the Fleet is %s with %+v and %v", f.Name, f.Spec, f.Annotations)
	}
	w.obeys("game:1", 3)
	status := w.gameType().Status
	want := v1alpha1.Revision{Name: strings.TrimPrefix(f.Name, game+"-"), Number: 1}
	if status.ReadyReplicas != 3 || status.UpdatedReplicas != 3 || status.Selector != "dormouse.dev/gametype=duel" || status.Phase != v1alpha1.PhaseAwake ||
		status.CurrentRevision == nil || *status.CurrentRevision != want || *status.UpdateRevision != want || len(status.Revisions) != 1 {
		t.Errorf("the status is %+v", status)
	}
	w.wantCondition(conditions.Progressing, metav1.ConditionTrue, reasons.Updated, "of revision 1.")
	w.wantCondition(conditions.Available, metav1.ConditionTrue, reasons.OK, "3 of 3 Servers are ready.")

	w.change(func(gt *v1alpha1.GameType) { gt.Spec.ScaleDown.Order = v1alpha1.NewestFirst })
	if order := w.of("game:1").Spec.ScaleDown.Order; order != v1alpha1.NewestFirst || len(w.all()) != 1 {
		t.Errorf("of %d Fleets the order is %s", len(w.all()), order)
	}
}

func TestAnUpdateGoesServerByServer(t *testing.T) {
	w := newWorld(t, false)
	w.create(nil)
	w.obeys("game:1", 3)
	w.image("game:2")
	w.wantReplicas("3 1", "game:1", "game:2")
	w.wantCondition(conditions.Progressing, metav1.ConditionTrue, reasons.Updating, "Revision 2 has 0 of 3 Servers ready; 3 of earlier ones take players.")
	for i, want := range []string{"2 2", "1 3", "0 3"} {
		w.obeys("game:2", int32(i)+1) // One more gets Ready,
		w.obeys("game:1", 3)          // and an old one goes.
		w.wantReplicas(want, "game:1", "game:2")
	}
	status := w.gameType().Status
	if status.CurrentRevision.Number != 2 || status.UpdatedReplicas != 3 || status.Replicas != 3 {
		t.Errorf("the status is %+v", status)
	}
	w.wantCondition(conditions.Progressing, metav1.ConditionTrue, reasons.Updated, "of revision 2.")
	if n := w.Emitted("ScaledDown"); n != 3 {
		t.Errorf("%d events tell that the old Fleet became smaller, want 3", n)
	}
}

func TestABrokenRevisionCostsNothingAndGoingBackHeals(t *testing.T) {
	w := newWorld(t, false)
	w.create(nil)
	w.obeys("game:1", 3)
	first := w.of("game:1").UID
	w.image("game:2")
	w.obeys("game:2", 0)
	w.Clock.Pass(9 * time.Minute)
	w.settled()
	w.wantCondition(conditions.Progressing, metav1.ConditionTrue, reasons.Updating, "The image can't be pulled.")
	w.Clock.Pass(2 * time.Minute)
	w.settled()
	w.wantCondition(conditions.Progressing, metav1.ConditionFalse, reasons.DeadlineExceeded, "The image can't be pulled.")
	w.wantReplicas("3 1", "game:1", "game:2")
	if n := w.Emitted("DeadlineExceeded"); n != 1 {
		t.Errorf("%d events tell of it, want 1", n)
	}
	w.image("game:1")
	w.obeys("game:2", 0)
	w.wantReplicas("3 0", "game:1", "game:2")
	if f := w.of("game:1"); f.UID != first || f.Annotations[wellknown.RevisionAnnotation] != "3" || len(w.all()) != 2 {
		t.Errorf("of %d Fleets the first is %+v", len(w.all()), f.ObjectMeta)
	}
	w.wantCondition(conditions.Progressing, metav1.ConditionTrue, reasons.Updated, "of revision 3.")
}

func TestATakenNameOfAFleetLeadsToAnother(t *testing.T) {
	w := newWorld(t, false)
	w.create(nil)
	f := w.of("game:1")
	if err := w.Admin.Delete(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	// Somebody else's, before the controller looks.
	other := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: f.Name}, Spec: f.Spec}
	if err := w.Admin.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	w.settled()
	names := map[string]bool{}
	for _, f := range w.all() {
		names[f.Name] = metav1.IsControlledBy(&f, w.gameType())
	}
	if ours, ok := names[f.Name]; len(names) != 2 || !ok || ours {
		t.Errorf("the Fleets, and whether they are its own, are %v", names)
	}
	if c := w.gameType().Status.CollisionCount; c == nil || *c != 1 {
		t.Errorf("collisionCount is %v", c)
	}
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	w := newWorld(t, false)
	w.create(func(gt *v1alpha1.GameType) {
		gt.Spec.Sleep = &v1alpha1.SleepSpec{}
		gt.Spec.Service = v1alpha1.GameServiceSpec{Type: v1alpha1.GameServiceLoadBalancer, Annotations: map[string]string{"a": "b"}}
	})
	w.obeys("game:1", 3)
	w.Writes.Take()
	for range 10 {
		w.Clock.Pass(time.Hour)
		w.reconcile()
	}
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("it wrote %v", did)
	}
	// A new leader remembers nothing, and writes nothing either.
	w.reconciler.Init()
	w.reconcile()
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("a new leader wrote %v", did)
	}
}
