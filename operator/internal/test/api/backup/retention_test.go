package backup_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// copied makes a Backup, and has it succeed.
func (w *world) copied(name string) {
	w.t.Helper()
	w.byHand(name)
	w.pass()
	w.ends(w.job(), good, true)
	w.pass()
	w.want(name, v1alpha1.CopyComplete, reasons.Copied)
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := w.Admin.Delete(w.t.Context(), &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}); err != nil {
		w.t.Fatal(err)
	}
}

// archiveOf is where the archive of a Backup of survival-0 is to be: a later one of the name has another one.
func archiveOf(b *v1alpha1.Backup) string {
	return "survival-0/" + b.Name + "-" + string(b.UID[:8]) + ".tar.zst"
}

func (w *world) none() {
	w.t.Helper()
	if all := w.backups(); len(all) != 0 {
		w.t.Errorf("there are %+v", all)
	}
}

func TestWhatIsNotKeptIsDeletedWithItsArchive(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.Keep.Last = 1 })
	w.pass()
	first := w.only()
	w.ends(w.job(), good, true)
	w.after(time.Minute)
	w.wake()
	w.sleep()
	w.after(time.Minute)
	w.ends(w.job(), good, true)
	w.pass()
	old := w.get(first.Name)
	if old.DeletionTimestamp.IsZero() {
		t.Fatal("the first one stays")
	}
	job := w.job()
	c := &job.Spec.Template.Spec.Containers[0]
	if args := strings.Join(c.Args, " "); args != "forget --at=file:///backups/"+archiveOf(first) || *c.SecurityContext.RunAsUser != 1000 {
		t.Errorf("its Job runs %s as %+v", args, c.SecurityContext)
	}
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName != "nas" {
			t.Errorf("it mounts %+v", v)
		}
	}
	if of, ok := job.Spec.Template.Labels[wellknown.DisksLabel]; ok {
		t.Errorf("it says that it has the disks of %s", of)
	}
	w.ends(job, `{}`, true)
	w.pass()
	if b := w.only(); b.Name == first.Name {
		t.Error("the first one is there still")
	}
}

func TestAPersonsCopyStays(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.Keep.Last, s.OnSleep = 1, new(false) })
	for _, name := range []string{"a", "b", "c"} {
		w.copied(name)
	}
	w.after(9999 * time.Hour)
	if n := len(w.backups()); n != 3 {
		t.Errorf("%d are left, want 3", n)
	}
}

// A person's word, and that of who removes Dormouse.
func TestAnArchiveStaysWhereItsBackupSaysSo(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnSleep = new(false) })
	var kept string
	for _, value := range []string{"true", "false"} {
		w.copied("b")
		b := w.get("b")
		if b.Status.Archive != archiveOf(b) || b.Status.Archive == kept {
			t.Errorf("its archive is %s, and the one that stays is %s", b.Status.Archive, kept)
		}
		before := b.DeepCopy()
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, wellknown.KeepArchiveAnnotation, value)
		if err := w.Admin.Patch(t.Context(), b, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		w.remove("b")
		w.pass()
		if value == "true" {
			w.none()
			if left := w.jobs(); len(left) != 0 {
				t.Errorf("its archive is deleted by %+v", left)
			}
			kept = b.Status.Archive
			continue
		}
		if args := w.job().Spec.Template.Spec.Containers[0].Args; args[0] != "forget" || args[1] != "--at=file:///backups/"+archiveOf(b) {
			t.Errorf("its Job runs %v", args)
		}
	}
}

// What can't be deleted keeps neither the Backup nor its namespace.
func TestABackupGoesWhereItsCopyCannot(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnSleep = new(false) })
	w.copied("failing")
	w.remove("failing")
	w.pass()
	w.ends(w.job(), `{"error":"no such bucket"}`, false)
	w.pass()
	w.none()
	if w.Emitted("BackupNotForgotten") != 1 {
		t.Error("nobody was told")
	}

	// Another world's copy may have the disk for an hour.
	w.copied("stuck")
	w.remove("stuck")
	w.pass()
	if within := *w.job().Spec.ActiveDeadlineSeconds; within != 70*60 {
		t.Errorf("its Job has %d seconds", within)
	}
	w.after(69 * time.Minute)
	if n := len(w.backups()); n != 1 {
		t.Error("it is gone though it can still be deleted")
	}
	w.after(3 * time.Minute)
	w.none()

	w.copied("lost")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "nas"}}
	if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	claim.Finalizers = nil
	if err := w.Admin.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.remove("lost")
	w.pass()
	w.none()
	if w.Emitted("BackupNotForgotten") != 2 {
		t.Error("nobody was told")
	}
}

func TestABackupThatIsDeletedWhileItCopies(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnSleep = new(false) })
	w.byHand("b")
	w.pass()
	pod := w.jobPod(w.job())
	w.hold(pod)
	w.remove("b")
	w.pass()
	if w.couldStart() {
		t.Error("the game could start beside the copy's Pod")
	}
	w.letGo(pod)
	w.gone(pod)
	w.pass()
	if !w.couldStart() {
		t.Error("the disks are held still")
	}
	if job := w.job(); job.Spec.Template.Spec.Containers[0].Args[0] != "forget" {
		t.Errorf("what was copied until then stays: %+v", job.Spec.Template.Spec.Containers[0].Args)
	}
	w.ends(w.job(), `{}`, true)
	w.pass()
	w.none()
}

// Somebody who removes the finalizer by hand gets no torn disk for it.
func TestABackupThatVanishesLetsGoOnceItsPodIsGone(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnSleep = new(false) })
	w.byHand("b")
	w.pass()
	pod := w.jobPod(w.job())
	w.hold(pod)
	b := w.get("b")
	before := b.DeepCopy()
	b.Finalizers = nil
	if err := w.Admin.Patch(t.Context(), b, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.remove("b")
	w.pass()
	w.passOf("b")
	if w.couldStart() {
		t.Error("the game could start beside the copy's Pod")
	}
	w.letGo(pod)
	w.gone(pod)
	w.passOf("b")
	if !w.couldStart() {
		t.Error("the disks are held still")
	}
}
