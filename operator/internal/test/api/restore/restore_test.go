package restore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
)

// A Restore and the game keep each other out, and what was there before goes after the game was
// Ready, while it sleeps.
func TestARestoreAndTheGameWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("survival")
	if pod := w.pod("survival"); pod.Labels[wellknown.DisksLabel] != "survival" {
		t.Errorf("the game's Pod has labels %v", pod.Labels)
	}
	w.backup("survival")
	w.restore()
	w.restorePhase(v1alpha1.CopyPending, "stop Server survival, or let it sleep")
	w.sleeps()

	job, pod := w.job("restore-undo")
	args := strings.Join(job.Spec.Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{"restore ", "--disk=world=/disks/world", "--id=undo", "--from=file:///backups/survival/survival-1.tar.zst", "--sha256=abab"} {
		if !strings.Contains(args, want) {
			t.Errorf("the Job's arguments %q lack %q", args, want)
		}
	}
	id := args[strings.Index(args, "--id="):]
	id, _, _ = strings.Cut(id, " ")
	w.restorePhase(v1alpha1.CopyRunning, "written")
	w.runs(true)
	w.says("survival", "Waits for Restore undo, which copies its disks.")
	w.noPod("survival")
	w.end(job, pod, copyjob.Report{Files: 7})
	w.restored("is Complete", func(r *v1alpha1.Restore) bool {
		return r.Status.Phase == v1alpha1.CopyComplete && r.Status.PreviousKept && r.Status.Files == 7 && len(r.Finalizers) == 0
	})
	w.noJob("restore-undo")
	w.ready("survival")
	w.restored("knows that the Server was Ready", func(r *v1alpha1.Restore) bool { return r.Status.ServerReadyTime != nil })
	w.noJob("restored-undo")
	w.sleeps()

	// A player comes before that is over: the player goes first, and it is done at the next sleep.
	w.job("restored-undo")
	w.runs(true)
	w.pod("survival")
	w.noJob("restored-undo")
	w.sleeps()
	job, pod = w.job("restored-undo")
	if args := job.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "drop-previous") || !slices.Contains(args, id) {
		t.Errorf("what was there before is dropped with %q", args)
	}
	w.end(job, pod, copyjob.Report{})
	w.restored("kept nothing", func(r *v1alpha1.Restore) bool { return !r.Status.PreviousKept })
	w.noJob("restored-undo")
	w.runs(true)
	w.pod("survival")
}

// What an earlier leader began holds the disks, and is brought to its end.
func TestANewLeaderGoesOnWithARestore(t *testing.T) {
	w := newWorld(t)
	first := w.lead()
	w.stored("survival", func(s *v1alpha1.Server) { s.Spec.Running = new(false) })
	w.backup("survival")
	w.restore()
	job, pod := w.job("restore-undo")
	w.restorePhase(v1alpha1.CopyRunning, "written")
	first()
	w.runs(true)
	w.lead()
	w.says("survival", "Waits for Restore undo, which copies its disks.")
	w.noPod("survival")
	w.end(job, pod, copyjob.Report{})
	w.restorePhase(v1alpha1.CopyComplete, "what Backup survival-1 has")
	w.pod("survival")
	w.noJob("restore-undo")
}

func TestAfterAFailureTheGameCanStart(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("survival", func(s *v1alpha1.Server) { s.Spec.Running = new(false) })
	w.backup("survival")
	w.restore()
	job, pod := w.job("restore-undo")
	w.runs(true)
	w.says("survival", "Waits for Restore undo")
	w.end(job, pod, copyjob.Report{Error: "the archive is broken"})
	w.restorePhase(v1alpha1.CopyFailed, "The archive is broken.")
	w.pod("survival")
	w.restored("lets go", func(r *v1alpha1.Restore) bool { return len(r.Finalizers) == 0 && !r.Status.PreviousKept })
}

// A Restore that is deleted while it runs has the disks until nothing of it writes any more, and they are whole.
func TestADeletedRestoreEndsItsJobFirst(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("survival", func(s *v1alpha1.Server) { s.Spec.Running = new(false) })
	w.backup("survival")
	w.restore()
	_, pod := w.job("restore-undo")
	if err := w.admin.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}); err != nil {
		t.Fatal(err)
	}
	w.runs(true)
	w.says("survival", "Waits for Restore undo")
	undo := &v1alpha1.Restore{}
	undo.Namespace, undo.Name = w.ns, "undo"
	if err := w.admin.Delete(t.Context(), undo); err != nil {
		t.Fatal(err)
	}
	w.wait("its Pod ends", func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.DeletionTimestamp.IsZero() {
			return errors.New("nobody deleted it")
		}
		return nil
	})
	w.noPod("survival")
	if err := w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.noJob("restore-undo")
	job, pod := w.job("settle-undo")
	w.noPod("survival")
	w.end(job, pod, copyjob.Report{Disks: []string{"world"}})
	w.pod("survival")
	w.wait("the Restore is gone", func() error {
		err := w.admin.Get(t.Context(), w.key("undo"), undo)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// The Server and its Restore are deleted together, and the disk stays: it is made whole.
func TestADiskThatADeletedServerLeavesIsMadeWhole(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("survival", func(s *v1alpha1.Server) {
		s.Spec.Running = new(false)
		s.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1234))}
	})
	w.backup("survival")
	w.restore()
	w.job("restore-undo")
	undo := &v1alpha1.Restore{}
	undo.Namespace, undo.Name = w.ns, "undo"
	if err := errors.Join(w.admin.Delete(t.Context(), w.server("survival")), w.admin.Delete(t.Context(), undo)); err != nil {
		t.Fatal(err)
	}
	job, pod := w.job("settle-undo")
	c := job.Spec.Template.Spec.Containers[0]
	if user := c.SecurityContext.RunAsUser; !slices.Contains(c.Args, "--disk=world=/disks/world") || user == nil || *user != 1234 {
		t.Errorf("its Job runs %q as user %v", c.Args, user)
	}
	w.claim("survival")
	w.end(job, pod, copyjob.Report{Disks: []string{"world"}})
	w.wait("the Restore is gone", func() error {
		err := w.admin.Get(t.Context(), w.key("undo"), undo)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// Where a disk is lost it is made anew, and what it would begin with isn't put on it besides.
func TestALostDiskIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("survival", func(s *v1alpha1.Server) {
		s.Spec.Running, s.Spec.Storage[0].From = new(false), &v1alpha1.DiskSource{Backup: "first"}
	})
	w.backup("lost")
	w.restore()
	job, pod := w.job("restore-undo")
	if claim := w.claim("survival"); claim.Labels[wellknown.DiskLabel] != "world" || claim.Labels[wellknown.ServerLabel] != "survival" {
		t.Errorf("the disk has labels %v", claim.Labels)
	}
	w.end(job, pod, copyjob.Report{})
	w.restorePhase(v1alpha1.CopyComplete, "survival-1")
	if got := w.claim("survival").Annotations[wellknown.FilledAnnotation]; got != "backup/survival-1" {
		t.Errorf("the disk says that it is filled with %q", got)
	}
	w.runs(true)
	w.pod("survival")
}

// A Server without disks starts without a look at any copy, and one with disks looks at the API
// server once in its namespace.
func TestOnlyServersWithDisksLookForCopies(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("warm", func(s *v1alpha1.Server) { s.Spec.Storage = nil })
	w.pod("warm")
	w.calls.take()
	w.stored("lobby", func(s *v1alpha1.Server) { s.Spec.Storage = nil })
	if pod := w.pod("lobby"); pod.Labels[wellknown.DisksLabel] != "" || pod.Spec.Affinity != nil {
		t.Errorf("its Pod has labels %v and affinity %+v", pod.Labels, pod.Spec.Affinity)
	}
	if read := w.calls.take(); len(read) != 0 {
		t.Errorf("a Server without disks starts after reading %v", read)
	}
	w.stored("first")
	w.pod("first")
	if read := w.calls.take(); read["backups"] != 1 || read["restores"] != 1 || read["jobs"] != 1 {
		t.Errorf("the first Server with disks starts after reading %v", read)
	}
	w.stored("second")
	w.pod("second")
	if read := w.calls.take(); read["backups"]+read["restores"]+read["jobs"] != 0 {
		t.Errorf("the next one starts after reading %v", read)
	}
}
