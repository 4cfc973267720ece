package backup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/gametype"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/test/api/fixture"
)

// backedUp is the GameType's condition as status, reason and message.
func (w *world) backedUp() string {
	w.t.Helper()
	gt := &v1alpha1.GameType{}
	if err := w.Admin.Get(w.t.Context(), w.key(game), gt); err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(gt.Status.Conditions, conditions.BackedUp)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

func (w *world) wantBackedUp(begins string) {
	w.t.Helper()
	if got := w.backedUp(); !strings.HasPrefix(got, begins) {
		w.t.Errorf("the GameType says %q, want %q", got, begins)
	}
}

func TestTheGameTypeSaysHowItsLastCopiesWent(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	w.wantBackedUp("Unknown " + reasons.NoBackup)
	w.ends(w.job(), good, true)
	w.pass()
	w.wantBackedUp("True " + reasons.BackedUp + " The last copy is from ")
	w.byHand("b")
	w.after(time.Minute)
	w.ends(w.job(), `{"error":"disk full"}`, false)
	w.pass()
	w.wantBackedUp("False " + reasons.CopyFailed + " Backup b of Server survival-0 failed: disk full.")

	change := func(f func(*v1alpha1.GameType)) {
		t.Helper()
		gt := &v1alpha1.GameType{}
		if err := w.Admin.Get(t.Context(), w.key(game), gt); err != nil {
			t.Fatal(err)
		}
		f(gt)
		if err := w.Admin.Update(t.Context(), gt); err != nil {
			t.Fatal(err)
		}
		w.pass()
	}
	change(func(gt *v1alpha1.GameType) { gt.Spec.Backup.Schedule = &v1alpha1.BackupSchedule{Cron: "99 4 * * *"} })
	w.wantBackedUp("False " + reasons.ScheduleInvalid + " No copies are made: spec.backup.schedule: cron can't be read")
	change(func(gt *v1alpha1.GameType) { gt.Spec.Backup = nil })
	if got := w.backedUp(); got != "" {
		t.Errorf("without spec.backup it says %q", got)
	}
}

// While the GameType doesn't ask for copies nobody notes that its game runs.
func TestWhatWasPlayedMeanwhileIsCopiedOnceCopiesAreAskedForAgain(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	w.ends(w.job(), good, true)
	w.pass()
	w.wantBackedUp("True")
	asks := func(spec *v1alpha1.BackupSpec) {
		t.Helper()
		gt := &v1alpha1.GameType{}
		if err := w.Admin.Get(t.Context(), w.key(game), gt); err != nil {
			t.Fatal(err)
		}
		gt.Spec.Backup = spec
		if err := w.Admin.Update(t.Context(), gt); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
	}
	asks(nil)
	w.podWith(server, map[string]string{wellknown.ServerLabel: server, wellknown.DisksLabel: server, wellknown.GameTypeLabel: game})
	w.sleep()
	w.after(time.Hour)
	w.only()
	asks(w.gameType(nil).Spec.Backup)
	if n := len(w.backups()); n != 2 {
		t.Fatalf("there are %d Backups, want 2", n)
	}
	w.ends(w.job(), good, true)
	w.after(time.Hour)
	if n := len(w.backups()); n != 2 {
		t.Errorf("an hour later there are %d Backups, want 2", n)
	}
}

// Two controllers write the conditions of one status, and each leaves the other's.
func TestTheConditionStaysBesideThoseOfTheGameTypesOwnController(t *testing.T) {
	w := prepared(t)
	indexer := w.Manager.GetFieldIndexer()
	if err := errors.Join(fleet.SetupIndexes(t.Context(), indexer), gametype.SetupIndexes(t.Context(), indexer), index.Setup(t.Context(), indexer)); err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.setup(nil)
	own := &gametype.Reconciler{Client: w.Manager.GetClient(), Events: w.Recorder, Now: w.Clock.Now}
	own.Init()
	ownPass := func(ctx context.Context) error {
		_, err := own.Reconcile(ctx, reconcile.Request{NamespacedName: w.key(game)})
		return err
	}
	both := func(says string) {
		t.Helper()
		fixture.Eventually(t, promptly, "both conditions are there", func(ctx context.Context) error {
			if err := ownPass(ctx); err != nil {
				return err
			}
			w.pass() //nolint:contextcheck // it has the test's
			gt := &v1alpha1.GameType{}
			if err := w.Admin.Get(ctx, w.key(game), gt); err != nil {
				return err
			}
			theirs, ours := meta.FindStatusCondition(gt.Status.Conditions, conditions.Updated), meta.FindStatusCondition(gt.Status.Conditions, conditions.BackedUp)
			if theirs == nil || ours == nil || string(ours.Status) != says {
				return fmt.Errorf("the conditions are %+v", gt.Status.Conditions)
			}
			return nil
		})
	}
	both("Unknown")
	w.ends(w.job(), good, true)
	both("True")
	// Neither has anything left to say.
	w.Writes.Take()
	for range 3 {
		if err := ownPass(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.pass()
	}
	if did := w.Writes.Take(); len(did) > 0 {
		t.Errorf("they wrote %v", did)
	}
}

// A Server of its own is copied like a place, and keeps what its own controller says.
func TestAServerOfItsOwnIsCopied(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game}}
	if err := w.Admin.Delete(t.Context(), gt); err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: server}, Spec: v1alpha1.ServerSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
		Storage:  []v1alpha1.StorageSpec{{Name: disk, MountPath: "/world", Size: resource.MustParse("1Gi")}},
		Backup:   &v1alpha1.BackupSpec{To: v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}}},
	}}
	w.create(s)
	before := s.DeepCopy()
	s.Status.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionFalse, Reason: reasons.Stopped, Message: "x", LastTransitionTime: metav1.Now()}}
	if err := w.Admin.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.ends(w.job(), good, true)
	w.pass()
	w.want(w.only().Name, v1alpha1.CopyComplete, reasons.Copied)
	if err := w.Admin.Get(t.Context(), w.key(server), s); err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(s.Status.Conditions, conditions.BackedUp) || !meta.IsStatusConditionFalse(s.Status.Conditions, conditions.Ready) {
		t.Errorf("its conditions are %+v", s.Status.Conditions)
	}
}
