package restore_test

import (
	"slices"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
)

// from has a Server's disk begin with something.
func from(source v1alpha1.DiskSource) func(*v1alpha1.Server) {
	return func(s *v1alpha1.Server) { s.Spec.Storage[0].From = &source }
}

// A new disk gets another Server's files before its game starts, and that Server waits meanwhile.
func TestANewDiskBeginsWithAnotherServers(t *testing.T) {
	w := newWorld(t)
	first := w.lead()
	w.stored("survival")
	w.pod("survival")
	w.stored("copy", from(v1alpha1.DiskSource{Server: "survival"}))
	w.says("copy", "Waits until disk world is filled from the disk of Server survival. Pod survival has the disks of Server survival: stop it, or let it sleep.")
	w.sleeps()

	job, pod := w.job("fill-copy-world-d1832ffc")
	spec := &job.Spec.Template.Spec
	if args := spec.Containers[0].Args; !slices.Contains(args, "--from=dir:/source") || !slices.Contains(args, "--disk=world=/disks/world") {
		t.Errorf("it is filled with %q", args)
	}
	for _, mount := range spec.Containers[0].VolumeMounts {
		if mount.MountPath == "/source/world" && !mount.ReadOnly {
			t.Error("the other Server's disk can be written")
		}
	}
	w.runs(true)
	w.says("survival", "Waits for Copy for copy, which copies its disks.")
	// Another leader knows it, too.
	first()
	w.lead()
	w.runs(true)
	w.says("survival", "Waits for Copy for copy, which copies its disks.")
	w.noPod("survival")
	w.noPod("copy")

	w.end(job, pod, copyjob.Report{})
	w.pod("copy")
	w.pod("survival")
	if got := w.claim("copy").Annotations[wellknown.FilledAnnotation]; got != "server/survival" {
		t.Errorf("the disk says that it is filled with %q", got)
	}
	w.noJob("fill-copy-world-d1832ffc")
}

// One that is to begin with something itself comes first: a copy of it would stay empty.
func TestADiskThatOthersBeginWithIsFilledFirst(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("survival", from(v1alpha1.DiskSource{Backup: "survival-1"}))
	w.says("survival", "There is no Backup survival-1.")
	w.stored("copy", from(v1alpha1.DiskSource{Server: "survival"}))
	w.says("copy", "Disk world of Server survival doesn't have yet what it begins with.")
	w.backup("survival")
	job, pod := w.job("fill-survival-world-288709bb")
	w.noPod("copy")
	w.end(job, pod, copyjob.Report{})
	w.pod("survival")
	w.says("copy", "Pod survival has the disks of Server survival: stop it, or let it sleep.")
	w.sleeps()
	job, pod = w.job("fill-copy-world-d1832ffc")
	w.end(job, pod, copyjob.Report{})
	w.pod("copy")
	if got := w.claim("copy").Annotations[wellknown.FilledAnnotation]; got != "server/survival" {
		t.Errorf("the disk says that it is filled with %q", got)
	}
}

// A new disk gets what a Backup has. A failure is told, and tried again.
func TestANewDiskBeginsWithABackup(t *testing.T) {
	w := newWorld(t)
	w.lead()
	w.stored("copy", from(v1alpha1.DiskSource{Backup: "survival-1"}))
	w.says("copy", "There is no Backup survival-1.")
	w.noPod("copy")
	w.backup("survival")
	job, pod := w.job("fill-copy-world-3d693420")
	if args := job.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--from=file:///backups/survival/survival-1.tar.zst") {
		t.Errorf("it is filled with %q", args)
	}
	w.end(job, pod, copyjob.Report{Error: "no space left on device"})
	w.noJob("fill-copy-world-3d693420")
	w.says("copy", "No space left on device.")
	w.noPod("copy")
	job, pod = w.job("fill-copy-world-3d693420")
	w.end(job, pod, copyjob.Report{})
	w.pod("copy")
	if got := w.claim("copy").Annotations[wellknown.FilledAnnotation]; got != "backup/survival-1" {
		t.Errorf("the disk says that it is filled with %q", got)
	}
}
