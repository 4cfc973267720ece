package gametype_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/test/api/fixture"
)

// stored gives the template a disk.
func stored(gt *v1alpha1.GameType) {
	gt.Spec.Template.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi")}}
}

// names are the names of the Servers that aren't being deleted.
func (w *world) names() []string {
	w.t.Helper()
	var names []string
	for _, s := range w.alive() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) wantNames(what string, want ...string) {
	w.t.Helper()
	w.eventually(what, func() error { w.guard(); return fixture.WantEqual("Servers", len(w.names()), len(want)) })
	w.settled()
	if got := w.names(); !slices.Equal(got, want) {
		w.t.Fatalf("%s: the Servers are %v, want %v", what, got, want)
	}
}

// Servers with disks keep their names, and so their disks, whatever becomes of them.
func TestPlacesOutlastSleepScaleAndUpdate(t *testing.T) {
	w := newWorld(t, true)
	w.create(stored)
	w.wantNames("new", "duel-0", "duel-1", "duel-2")
	for _, s := range w.alive() {
		if want := s.Name[len("duel-"):]; s.Labels[wellknown.PlaceLabel] != want {
			t.Errorf("Server %s has place %s", s.Name, s.Labels[wellknown.PlaceLabel])
		}
	}
	w.plays(0)
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(1)) })
	w.wantNames("scaled down", "duel-0")
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(3)) })
	w.wantNames("scaled up", "duel-0", "duel-1", "duel-2")
	w.plays(0)
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Scale.Replicas = 0 })
	w.wantNames("asleep")
	if before, after := w.raise("GameType", game, 3); before != 0 || after != 3 {
		t.Errorf("a wake found %d replicas and left %d", before, after)
	}
	w.wantNames("woken", "duel-0", "duel-1", "duel-2")

	// An update goes place by place, and the new Server comes when the old one is gone.
	w.plays(0)
	w.image("game:2")
	w.eventually("all are of the new revision", func() error {
		w.guard()
		w.plays(0)
		old := 0
		for _, s := range w.servers() {
			if s.Spec.Template.Spec.Containers[0].Image != "game:2" {
				old++
			}
		}
		if n := len(w.servers()); n > 3 {
			t.Fatalf("there are %d Servers", n)
		}
		return fixture.WantEqual("old ones", old, 0)
	})
	w.wantNames("updated", "duel-0", "duel-1", "duel-2")
}

// A revision that never gets ready gives the one place that there is back.
func TestABrokenRevisionGivesItsPlaceBack(t *testing.T) {
	w := newWorld(t, true)
	w.create(func(gt *v1alpha1.GameType) { stored(gt); gt.Spec.Replicas = new(int32(1)) })
	w.plays(2)
	w.image("game:missing")
	image := func() string { return w.servers()[0].Spec.Template.Spec.Containers[0].Image }
	if got := w.servers(); len(got) != 1 || !got[0].Spec.Drain || image() != "game:1" {
		t.Fatalf("under its players the Server becomes %+v", got)
	}
	drained := w.servers()[0]
	drained.Status.Players.Current, drained.Status.DeletionAllowed = 0, true
	if err := w.Admin.Status().Update(t.Context(), &drained); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new revision is tried", func() error {
		w.guard()
		if len(w.alive()) == 0 {
			return fixture.WantEqual("Servers", 0, 1)
		}
		return fixture.WantEqual("image", image(), "game:missing")
	})
	w.settled()
	w.Clock.Pass(10 * time.Minute)
	w.eventually("the old one is back", func() error {
		w.guard()
		if len(w.alive()) == 0 {
			return fixture.WantEqual("Servers", 0, 1)
		}
		return fixture.WantEqual("image", image(), "game:1")
	})
	w.plays(0)
	w.wantCondition(conditions.Progressing, metav1.ConditionFalse, reasons.DeadlineExceeded, "gave its places back to revision 1")
}

// A place that sleeps, or has no Server any more, has nobody but its GameType who lets its disks outlive that.
func TestDisksOfPlacesWithoutServersOutliveAGameTypeThatSaysSo(t *testing.T) {
	w := newWorld(t, false)
	w.reconciler.Live = w.Admin
	gt := w.create(func(gt *v1alpha1.GameType) {
		stored(gt)
		gt.Spec.Template.Spec.Storage[0].OnDelete = v1alpha1.StorageDelete
	})
	set := disks.OfPlace(gt, 7)
	if err := disks.Keep(t.Context(), w.Admin, w.Admin, set); err != nil {
		t.Fatal(err)
	}
	owners := func() []metav1.OwnerReference {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: w.Namespace, Name: disks.ClaimName(set.Name, "world")}
		if err := w.Admin.Get(t.Context(), key, claim); err != nil {
			t.Fatal(err)
		}
		return claim.OwnerReferences
	}
	w.settled()
	if is := owners(); len(is) != 1 || is[0].UID != gt.UID {
		t.Fatalf("the disk has the owners %v, want its GameType", is)
	}
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Template.Spec.Storage[0].OnDelete = v1alpha1.StorageRetain })
	w.settled()
	if is := owners(); len(is) != 0 {
		t.Errorf("the disk has the owners %v still", is)
	}
}
