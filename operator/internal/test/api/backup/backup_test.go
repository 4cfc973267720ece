package backup_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

func TestACopyIsMadeWhenTheGameSleeps(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.wake()
	w.after(time.Hour)
	if all := w.backups(); len(all) != 0 {
		t.Fatalf("while the game runs there are %+v", all)
	}
	w.sleep()
	w.pass()
	b := w.want(w.only().Name, v1alpha1.CopyRunning, reasons.Copying)
	if !b.Status.AtRest || b.Status.To.Claim.Name != "nas" || *b.Status.RunAs.User != 1000 || b.Labels[wellknown.BackupCauseLabel] != "sleep" {
		t.Errorf("it says %+v, with %v", b.Status, b.Labels)
	}
	job := w.job()
	if args := strings.Join(job.Spec.Template.Spec.Containers[0].Args, " "); args != "backup --disk=world=/disks/world --to=file:///backups/"+archiveOf(b) {
		t.Errorf("its Job runs %s", args)
	}
	w.ends(job, good, true)
	w.pass()
	b = w.want(b.Name, v1alpha1.CopyComplete, reasons.Copied)
	if s := b.Status; s.Size.Value() != 2048 || s.Files != 3 || s.SHA256 != "ab12" || !slices.Equal(s.Disks, []string{"world"}) || !s.AtRest || s.CompletionTime == nil {
		t.Errorf("its status is %+v", s)
	}
	if n := w.Emitted("BackupComplete"); n != 2 {
		t.Errorf("%d events tell of it, want one on the Backup and one on the GameType", n)
	}
	if !w.wake() {
		t.Error("the disks are held still")
	}
	w.sleep()
	w.after(time.Second)
	if all := w.backups(); len(all) != 2 {
		t.Errorf("after the next sleep there are %d Backups, want 2", len(all))
	}
}

func TestAtRestNothingIsWrittenOrMade(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	w.ends(w.job(), good, true)
	w.pass()
	// A manifest that is applied again and again.
	for range 3 {
		gt := w.gameType(nil)
		gt.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType"}
		if err := w.Admin.Patch(t.Context(), gt, client.Apply, client.FieldOwner("gitops"), client.ForceOwnership); err != nil { //nolint:staticcheck // the whole object is applied
			t.Fatal(err)
		}
		w.after(time.Minute)
		if did := w.Writes.Take(); len(did) > 0 {
			t.Errorf("it wrote %v", did)
		}
	}
	w.want(w.only().Name, v1alpha1.CopyComplete, reasons.Copied)
}

func TestCopiesAreMadeAtTimes(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) {
		s.OnSleep, s.Schedule = new(false), &v1alpha1.BackupSchedule{Cron: "0 4 * * *"}
	})
	w.pass()
	if all := w.backups(); len(all) != 0 {
		t.Fatalf("before its time there are %+v", all)
	}
	w.after(72 * time.Hour) // nobody was there for three of them
	b := w.want(w.only().Name, v1alpha1.CopyRunning, reasons.Copying)
	if b.Labels[wellknown.BackupCauseLabel] != "schedule" || b.Name != server+"-"+w.Clock.Now().UTC().Format("20060102150405") {
		t.Errorf("it is %s, with %v", b.Name, b.Labels)
	}
	w.ends(w.job(), good, true)
	w.after(time.Minute)
	w.only()
	// At the next time the game runs: the copy waits for its end.
	w.wake()
	w.after(24 * time.Hour)
	all := w.backups()
	if len(all) != 2 {
		t.Fatalf("after another day there are %d, want 2", len(all))
	}
	i := slices.IndexFunc(all, func(other v1alpha1.Backup) bool { return other.Name != b.Name })
	w.want(all[i].Name, v1alpha1.CopyPending, reasons.DisksInUse)
	w.after(48 * time.Hour)
	if n := len(w.backups()); n != 2 {
		t.Errorf("while one waits there are %d, want 2", n)
	}
	w.sleep()
	w.pass()
	w.want(all[i].Name, v1alpha1.CopyRunning, reasons.Copying)
}

func TestAPersonsCopyWaitsForTheDisksAndForItsTurn(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnSleep = new(false) })
	w.wake()
	w.byHand("b-first")
	w.pass()
	w.want("b-first", v1alpha1.CopyPending, reasons.DisksInUse)
	// The game ends, and somebody is at its files.
	w.podWith("files", map[string]string{wellknown.DisksLabel: server})
	w.sleep()
	w.pass()
	w.want("b-first", v1alpha1.CopyPending, reasons.DisksInUse)
	w.end("files")
	w.pass()
	w.want("b-first", v1alpha1.CopyRunning, reasons.Copying)
	w.byHand("a-second")
	w.pass()
	w.want("a-second", v1alpha1.CopyPending, reasons.EarlierCopy)
	w.ends(w.job(), good, true)
	w.pass()
	w.want("b-first", v1alpha1.CopyComplete, reasons.Copied)
	w.want("a-second", v1alpha1.CopyRunning, reasons.Copying)
}

func TestACopyIsGivenUpForAWake(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	b := w.only()
	job := w.job()
	pod := w.jobPod(job)
	w.hold(pod)
	if w.wake() || w.denied != 1 {
		t.Fatal("the game starts while its disks are copied")
	}
	w.pass()
	if left := w.jobs(); len(left) != 0 {
		t.Errorf("its Jobs are %+v", left)
	}
	// Its Pod has the disks until it is gone.
	w.want(b.Name, v1alpha1.CopyRunning, reasons.Copying)
	if w.wake() {
		t.Fatal("the game starts beside the copy's Pod")
	}
	w.letGo(pod)
	w.gone(pod)
	w.pass()
	w.want(b.Name, v1alpha1.CopyCanceled, reasons.GameWoken)
	if w.released != 1 || w.Emitted("BackupCanceled") != 2 {
		t.Errorf("the game's controller heard %d times that the disks are free", w.released)
	}
	// Whoever else waits for the disks lets the game go first.
	w.byHand("later")
	w.pass()
	w.want("later", v1alpha1.CopyPending, reasons.GameFirst)
	if !w.wake() {
		t.Fatal("the disks are held still")
	}
	w.after(time.Hour)
	w.want("later", v1alpha1.CopyPending, reasons.DisksInUse)
	w.sleep()
	w.pass()
	w.want("later", v1alpha1.CopyRunning, reasons.Copying)
}

// hold keeps a Pod from being deleted, as its kubelet does until its containers have ended.
func (w *world) hold(pod string) {
	w.t.Helper()
	w.finalizers(pod, []string{"test.dormouse.dev/kubelet"})
}

func (w *world) letGo(pod string) { w.t.Helper(); w.finalizers(pod, nil) }

func (w *world) finalizers(name string, finalizers []string) {
	w.t.Helper()
	pod := &corev1.Pod{}
	if err := w.Admin.Get(w.t.Context(), w.key(name), pod); err != nil {
		w.t.Fatal(err)
	}
	before := pod.DeepCopy()
	pod.Finalizers = finalizers
	if err := w.Admin.Patch(w.t.Context(), pod, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// gone waits until a Pod of a deleted Job is gone, which Kubernetes' garbage collector sees to.
func (w *world) gone(name string) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "Pod "+name+" is gone", func(ctx context.Context) error {
		err := w.Admin.Get(ctx, w.key(name), &corev1.Pod{})
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

func TestPlayersWaitForACopyIfTheSpecSaysSo(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnWake = v1alpha1.BackupOnWakeWait })
	w.pass()
	b, job := w.only(), w.job()
	if w.wake() {
		t.Fatal("the game starts while its disks are copied")
	}
	w.after(time.Minute)
	w.want(b.Name, v1alpha1.CopyRunning, reasons.Copying)
	w.ends(job, good, true)
	w.pass()
	w.want(b.Name, v1alpha1.CopyComplete, reasons.Copied)
	if w.released != 1 || !w.wake() {
		t.Errorf("the disks are held still, or nobody was told: %d", w.released)
	}
}

func TestACopyBesideTheGameHoldsNothing(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.WhileRunning, s.OnSleep = v1alpha1.BackupCopies, new(false) })
	w.wake()
	w.byHand("now")
	w.pass()
	if b := w.want("now", v1alpha1.CopyRunning, reasons.Copying); b.Status.AtRest {
		t.Error("it says that nothing writes meanwhile")
	}
	w.sleep()
	if !w.wake() {
		t.Error("the game can't start again")
	}
	w.ends(w.job(), good, true)
	w.pass()
	if b := w.want("now", v1alpha1.CopyComplete, reasons.Copied); b.Status.AtRest {
		t.Error("it says that nothing wrote meanwhile")
	}
}

func TestANewLeaderGoesOn(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	b, job := w.only(), w.job()
	w.replaceLeader()
	w.pass()
	if again := w.job(); again.UID != job.UID {
		t.Error("it made another Job")
	}
	if w.wake() {
		t.Fatal("with a new leader the game starts while its disks are copied")
	}
	w.replaceLeader() // and nobody remembers that it was to start
	w.ends(w.job(), good, true)
	w.pass()
	w.want(b.Name, v1alpha1.CopyComplete, reasons.Copied)
	if !w.wake() {
		t.Error("the disks are held still")
	}
}

// A leader that ended between two writes leaves a Backup that runs, and no Job.
func TestANewLeaderLooksBeforeItCopies(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) { s.OnSleep = new(false) })
	for name, sleeps := range map[string]bool{"asleep": true, "awake": false} {
		w.byHand(name)
		b := w.get(name)
		b.Status = v1alpha1.BackupStatus{
			Phase: v1alpha1.CopyRunning, AtRest: true, StartTime: &metav1.Time{Time: w.Clock.Now()}, Disks: []string{disk},
			To: &v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}},
		}
		if err := w.Admin.Status().Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		w.replaceLeader()
		if !sleeps {
			w.wake()
		}
		w.pass()
		if !sleeps {
			w.want(name, v1alpha1.CopyCanceled, reasons.GameWoken)
			if left := w.jobs(); len(left) != 0 {
				t.Errorf("beside the game there are %+v", left)
			}
			w.sleep()
			continue
		}
		w.ends(w.job(), good, true)
		w.pass()
		w.want(name, v1alpha1.CopyComplete, reasons.Copied)
	}
}

func TestACopyThatFailsIsMadeAgainLater(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	b := w.only()
	w.ends(w.job(), `{"error":"write /backups: no space left on device"}`, false)
	w.pass()
	failed := w.want(b.Name, v1alpha1.CopyFailed, reasons.CopyFailed)
	if words := failed.Status.Conditions[0].Message; words != "Write /backups: no space left on device." {
		t.Errorf("it says %q", words)
	}
	w.Clock.Pass(time.Minute)
	if w.Emitted("BackupFailed") != 2 || !w.wake() {
		t.Error("nobody was told, or the disks are held still")
	}
	w.sleep() // it was used since, so that the next copy isn't put off
	w.after(time.Second)
	if n := len(w.backups()); n != 2 {
		t.Errorf("after the next sleep there are %d, want 2", n)
	}
}

func TestAFailureIsRetriedWithoutAnotherSleep(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	w.ends(w.job(), `{"error":"no"}`, false)
	w.pass()
	w.after(9 * time.Minute)
	w.want(w.only().Name, v1alpha1.CopyFailed, reasons.CopyFailed)
	w.after(time.Minute)
	if n := len(w.backups()); n != 2 {
		t.Errorf("after ten minutes there are %d, want 2", n)
	}
}

func TestADeletedJobIsNotMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.setup(nil)
	w.pass()
	b, job := w.only(), w.job()
	if err := w.Admin.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.want(b.Name, v1alpha1.CopyCanceled, reasons.JobDeleted)
	if left := w.jobs(); len(left) != 0 {
		t.Errorf("there are %+v", left)
	}
}

func TestWithoutASpecOrADiskACopyWaits(t *testing.T) {
	w := newWorld(t)
	w.byHand("early")
	w.pass()
	w.want("early", v1alpha1.CopyPending, reasons.NoServer)
	gt := w.gameType(nil)
	gt.Spec.Backup = nil
	w.create(gt)
	w.pass()
	w.want("early", v1alpha1.CopyPending, reasons.NotAsked)
	gt.Spec.Backup = w.gameType(nil).Spec.Backup
	if err := w.Admin.Update(t.Context(), gt); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.want("early", v1alpha1.CopyPending, reasons.NoDisk)
	if left := w.jobs(); len(left) != 0 {
		t.Errorf("there are %+v", left)
	}
	if !w.couldStart() {
		t.Error("a Backup that waits holds the disks")
	}
}

// couldStart tells whether the game could start now.
func (w *world) couldStart() bool {
	end, holder := w.table.Start(w.key(server))
	if holder == "" {
		end()
	}
	return holder == ""
}

// Whoever may make Backups in one namespace has no use of the Servers of another.
func TestAnotherNamespacesServerCannotBeNamed(t *testing.T) {
	victim, w := newWorld(t), newWorld(t)
	victim.setup(nil)
	w.byHand("mine")
	w.pass()
	w.want("mine", v1alpha1.CopyPending, reasons.NoServer)
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "path"}, Spec: v1alpha1.BackupRequest{Server: victim.Namespace + "/" + server}}
	if err := w.Admin.Create(t.Context(), b); err == nil {
		t.Error("a Backup may name another namespace")
	}
	if jobs := append(w.jobs(), victim.jobs()...); len(jobs) != 0 {
		t.Errorf("there are %+v", jobs)
	}
}
