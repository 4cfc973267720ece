package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/text"
)

// snapshotsServed reports whether the cluster has the snapshot API.
func (r *Reconciler) snapshotsServed(ctx context.Context, b *v1alpha1.Backup, set *disks.Set) (step, error) {
	_, err := r.snapshot(ctx, b, set.Spec.Storage[0].Name)
	if meta.IsNoMatchError(err) {
		return waiting(userRetry, reasons.NoSnapshots, "The cluster doesn't have the API snapshot.storage.k8s.io/v1; install it and its controller, or name a claim or a bucket in spec.backup.to."), nil
	}
	return step{}, err
}

// snapshot reads the snapshot of a disk; nil: it isn't there.
func (r *Reconciler) snapshot(ctx context.Context, b *v1alpha1.Backup, disk string) (*unstructured.Unstructured, error) {
	return copyjob.ReadSnapshot(ctx, r.Live, client.ObjectKey{Namespace: b.Namespace, Name: copyjob.SnapshotName(b.Name, disk)}) //nolint:wrapcheck // it says which
}

// makeSnapshots makes the snapshots of a Backup that aren't there yet.
func (r *Reconciler) makeSnapshots(ctx context.Context, b *v1alpha1.Backup) error {
	for _, disk := range b.Status.Disks {
		source := map[string]any{"source": map[string]any{"persistentVolumeClaimName": disks.ClaimName(b.Spec.Server, disk)}}
		if class := b.Status.To.VolumeSnapshot.ClassName; class != nil {
			source["volumeSnapshotClassName"] = *class
		}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": source}}
		u.SetGroupVersionKind(copyjob.SnapshotKind)
		u.SetNamespace(b.Namespace)
		u.SetName(copyjob.SnapshotName(b.Name, disk))
		u.SetLabels(map[string]string{
			copyjob.ManagedByLabel: wellknown.ManagedBy, wellknown.ServerLabel: b.Spec.Server, wellknown.DiskLabel: disk,
			wellknown.BackupLabel: backupLabel(b.Name),
		})
		u.SetOwnerReferences([]metav1.OwnerReference{ownerOf(b)})
		err := r.Client.Create(ctx, u)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create VolumeSnapshot %s/%s: %w", b.Namespace, u.GetName(), err)
		}
	}
	return nil
}

// observeSnapshots reads how the snapshots of a Backup that runs do.
func (r *Reconciler) observeSnapshots(ctx context.Context, b *v1alpha1.Backup, m *state, o *observed) error {
	o.made, o.frozen, o.gone = true, true, m.stopping != ""
	if m.refused != "" {
		o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: m.refused}
		return nil
	}
	ready, size, sized := true, resource.Quantity{}, true
	for _, disk := range b.Status.Disks {
		u, err := r.snapshot(ctx, b, disk)
		if meta.IsNoMatchError(err) {
			o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: "The cluster doesn't have the API snapshot.storage.k8s.io/v1 any more."}
			return nil
		}
		if err != nil {
			return err
		}
		if u == nil {
			o.made, o.frozen, ready = false, false, false
			continue
		}
		if !metav1.IsControlledBy(u, b) {
			o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: fmt.Sprintf("There is a VolumeSnapshot %s that isn't this Backup's; delete it.", u.GetName())}
			return nil
		}
		m.made = true
		created, _, _ := unstructured.NestedString(u.Object, "status", "creationTime")
		isReady, _, _ := unstructured.NestedBool(u.Object, "status", "readyToUse")
		o.frozen, ready = o.frozen && (created != "" || isReady), ready && isReady
		if said, _, _ := unstructured.NestedString(u.Object, "status", "error", "message"); said != "" && !isReady {
			o.outcome.Message = fmt.Sprintf("VolumeSnapshot %s: %s", u.GetName(), text.Plain(said, 300))
		}
		if restore, _, _ := unstructured.NestedString(u.Object, "status", "restoreSize"); restore != "" {
			if q, err := resource.ParseQuantity(restore); err == nil {
				size.Add(q)
				continue
			}
		}
		sized = false
	}
	switch timeout := timeoutOf(o.set); {
	case ready:
		o.outcome = copyjob.Outcome{Done: true, Report: copyjob.Report{Disks: b.Status.Disks}}
		if sized {
			o.outcome.Report.Bytes = size.Value()
		}
	case b.Status.StartTime != nil && r.Now().Sub(b.Status.StartTime.Time) > timeout:
		o.outcome.Done, o.outcome.Failed = true, true
		o.outcome.Message = "The snapshots weren't ready within " + timeout.Round(time.Second).String() + ". " + o.outcome.Message
	}
	return nil
}

// leaveSnapshots lets the snapshots of a Backup outlive it.
func (r *Reconciler) leaveSnapshots(ctx context.Context, b *v1alpha1.Backup) error {
	for _, disk := range b.Status.Disks {
		u, err := r.snapshot(ctx, b, disk)
		if meta.IsNoMatchError(err) {
			return nil // with the API all snapshots went
		}
		if err != nil {
			return err
		}
		if u == nil || !metav1.IsControlledBy(u, b) {
			continue
		}
		before := u.DeepCopy()
		u.SetOwnerReferences(slices.DeleteFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == b.UID }))
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, u, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("leave VolumeSnapshot %s/%s: %w", b.Namespace, u.GetName(), err)
		}
	}
	return nil
}

// deleteSnapshots deletes the snapshots of a Backup.
func (r *Reconciler) deleteSnapshots(ctx context.Context, b *v1alpha1.Backup) error {
	for _, disk := range b.Status.Disks {
		u, err := r.snapshot(ctx, b, disk)
		if meta.IsNoMatchError(err) {
			return nil // with the API all snapshots went
		}
		if err != nil {
			return err
		}
		if u == nil || !metav1.IsControlledBy(u, b) || !u.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, u, client.Preconditions{UID: new(u.GetUID())}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete VolumeSnapshot %s/%s: %w", b.Namespace, u.GetName(), err)
		}
	}
	return nil
}
