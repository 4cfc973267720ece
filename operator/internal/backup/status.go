package backup

import (
	"context"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// setStatus writes how far a Backup is, if that isn't there yet.
func (r *Reconciler) setStatus(ctx context.Context, b *v1alpha1.Backup, s step) error {
	original := b.DeepCopy()
	r.say(b, s)
	_, err := patch.Status(ctx, r.Client, original, b)
	return client.IgnoreNotFound(err)
}

// say puts a step's words into a status.
func (r *Reconciler) say(b *v1alpha1.Backup, s step) {
	b.Status.ObservedGeneration, b.Status.Phase = b.Generation, s.phase
	c := condition.False(conditions.Complete, s.reason, "%s", s.message)
	if s.phase == v1alpha1.CopyComplete {
		c = condition.True(conditions.Complete, s.reason, "%s", s.message)
	}
	condition.SetAll(&b.Status.Conditions, b.Generation, metav1.NewTime(r.Now()), c)
}

// setRunning writes that a Backup is about to copy, with all that a later leader has to know.
func (r *Reconciler) setRunning(ctx context.Context, b *v1alpha1.Backup, set *disks.Set, atRest bool) error {
	original := b.DeepCopy()
	st := &b.Status
	st.StartTime, st.AtRest, st.To = &metav1.Time{Time: r.Now()}, atRest, set.Backup.To.DeepCopy()
	st.Disks = nil
	for i := range set.Spec.Storage {
		st.Disks = append(st.Disks, set.Spec.Storage[i].Name)
	}
	if st.To.VolumeSnapshot == nil {
		st.Archive = copyjob.Archive(b)
	}
	st.RunAs = runAs(set)
	r.say(b, step{phase: v1alpha1.CopyRunning, reason: reasons.Copying, message: "The disks are being copied."})
	_, err := patch.Status(ctx, r.Client, original, b)
	return err
}

// runAs is whose the archive will be; nil: the sidecar's own user's.
func runAs(set *disks.Set) *v1alpha1.BackupRunAs {
	user, group, fsGroup := disks.Owner(set.Spec)
	if user == nil && group == nil && fsGroup == nil {
		return nil
	}
	return &v1alpha1.BackupRunAs{User: user, Group: group, FSGroup: fsGroup}
}

// setEnd writes how a Backup ended.
func (r *Reconciler) setEnd(ctx context.Context, b *v1alpha1.Backup, o observed, s step) error {
	original := b.DeepCopy()
	st, report := &b.Status, &o.outcome.Report
	st.CompletionTime = &metav1.Time{Time: r.Now()}
	if s.phase == v1alpha1.CopyComplete {
		st.Files, st.SHA256 = report.Files, report.SHA256
		st.AtRest = st.AtRest && !report.Changed
		if report.Bytes > 0 {
			st.Size = rounded(report.Bytes)
		}
		if len(report.Disks) > 0 {
			st.Disks = report.Disks
		}
	}
	r.say(b, s)
	_, err := patch.Status(ctx, r.Client, original, b)
	return err
}

// rounded is a number of bytes that people can read: a whole number of at least ten Ki, Mi or Gi, rounded
// up.
func rounded(bytes int64) *resource.Quantity {
	unit := int64(1)
	for bytes >= 10*1024*unit {
		unit *= 1024
	}
	return resource.NewQuantity((bytes+unit-1)/unit*unit, resource.BinarySI)
}
