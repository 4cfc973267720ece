package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// killedAfter is how long the program has to end when a copy is given up: a player waits for it.
const killedAfter = 5 * time.Second

// unfilledRetry is for a disk that is being filled, which isn't watched.
const unfilledRetry = time.Minute

// backupJob is the name of the Job of a Backup.
func backupJob(backup string) string { return copyjob.Name("backup-", backup) }

// backupLabel is a Backup's name as a label has it.
func backupLabel(backup string) string { return copyjob.Name("", backup) }

// prepared reports what keeps a copy from being made that somebody has to change.
func (r *Reconciler) prepared(ctx context.Context, b *v1alpha1.Backup, set *disks.Set) (step, error) {
	for i := range set.Spec.Storage {
		disk, claim := &set.Spec.Storage[i], &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, disk.Name)}
		err := r.Live.Get(ctx, key, claim)
		if apierrors.IsNotFound(err) {
			return waiting(userRetry, reasons.NoDisk, "There is no PersistentVolumeClaim "+key.Name+" yet: the Server has never run with this disk."), nil
		}
		if err != nil {
			return step{}, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
		}
		if err := disks.Others(claim, set.Name); err != nil {
			return waiting(userRetry, reasons.NoDisk, err.Error()), nil
		}
		if disks.Unfilled(claim, disk) {
			return waiting(unfilledRetry, reasons.NoDisk, "PersistentVolumeClaim "+key.Name+" doesn't have yet what spec.storage[].from names."), nil
		}
	}
	if set.Backup.To.VolumeSnapshot != nil {
		return r.snapshotsServed(ctx, b, set)
	}
	return step{}, nil
}

// make makes what copies. A refusal of the API server ends the Backup in the next pass.
func (r *Reconciler) make(ctx context.Context, b *v1alpha1.Backup, o observed, m *state, s step) (step, error) {
	var err error
	switch {
	case o.set == nil || o.set.Backup == nil:
		err = errNoSpec
	case b.Status.To.VolumeSnapshot != nil:
		s.requeueAfter = goneLook
		err = r.makeSnapshots(ctx, b)
	default:
		err = r.makeJob(ctx, b, o.set)
	}
	switch {
	case err == nil:
		m.made = true
	case errors.Is(err, errNotYet):
		s.requeueAfter = goneLook
	case errors.Is(err, errNoSpec):
		m.refused, s.requeueAfter = text.UpperFirst(err.Error())+".", time.Millisecond
	case refusal.Is(err):
		m.refused, s.requeueAfter = "The API server refuses it: "+text.Bounded(refusal.Words(err))+".", time.Millisecond
	default:
		return s, err
	}
	return s, nil
}

var (
	errNoSpec     = errors.New("the Server or its spec.backup is gone")
	errNoTemplate = errors.New("there is no PodTemplate for the sidecar")
	errNotYet     = errors.New("what an earlier one has made is still there")
)

// makeJob makes the Job of a Backup that runs.
func (r *Reconciler) makeJob(ctx context.Context, b *v1alpha1.Backup, set *disks.Set) error {
	if left, err := r.copying(ctx, client.ObjectKeyFromObject(b)); err != nil || left {
		return cmp.Or(err, errNotYet)
	}
	template, err := copyjob.ReadTemplate(ctx, r.Client, r.SidecarTemplate)
	if err != nil || template == nil {
		return cmp.Or(err, errNoTemplate)
	}
	placed, err := disks.Placed(ctx, r.Live, set)
	if err != nil {
		return err //nolint:wrapcheck // it says of which disk
	}
	args := []string{"backup"}
	for i := range set.Spec.Storage {
		name := set.Spec.Storage[i].Name
		args = append(args, "--disk="+name+"="+disks.MountPath(name))
	}
	args = append(args, "--to="+copyjob.URL(b))
	job := copyjob.Build(copyjob.Options{
		Namespace: b.Namespace, Name: backupJob(b.Name), Owner: ownerOf(b), Set: placed, Template: template,
		Labels: map[string]string{wellknown.BackupLabel: backupLabel(b.Name)},
		Args:   append(args, copyjob.Flags(b.Status.To)...), Target: b.Status.To, ReadOnly: true, Timeout: timeoutOf(set),
	})
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(killedAfter / time.Second))
	err = r.Client.Create(ctx, job)
	if apierrors.IsAlreadyExists(err) {
		return errNotYet // the next pass looks whose it is
	}
	return kit.Wrapf(err, "create Job %s", client.ObjectKeyFromObject(job))
}

// stop has what copies end.
func (r *Reconciler) stop(ctx context.Context, b *v1alpha1.Backup) error {
	if b.Status.To != nil && b.Status.To.VolumeSnapshot != nil {
		return r.deleteSnapshots(ctx, b)
	}
	return r.deleteJob(ctx, b, backupJob(b.Name))
}

// deleteJob deletes a Job of a Backup. It stays until its Pods are gone.
func (r *Reconciler) deleteJob(ctx context.Context, b *v1alpha1.Backup, name string) error {
	job := &batchv1.Job{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, job)
	if err == nil && metav1.IsControlledBy(job, b) && job.DeletionTimestamp.IsZero() {
		err = r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &job.UID})
	}
	return kit.Wrapf(client.IgnoreNotFound(err), "delete Job %s/%s", b.Namespace, name)
}

// ownerOf is how a Backup owns its Job and its snapshots.
func ownerOf(b *v1alpha1.Backup) metav1.OwnerReference {
	return *metav1.NewControllerRef(b, v1alpha1.GroupVersion.WithKind("Backup"))
}

// timeoutOf is how long a copy may take.
func timeoutOf(set *disks.Set) time.Duration {
	if set == nil || set.Backup == nil || set.Backup.Timeout == nil {
		return time.Hour
	}
	return set.Backup.Timeout.Duration
}

// waiting is the step of a Backup that waits.
func waiting(after time.Duration, reason, message string) step {
	return step{phase: v1alpha1.CopyPending, reason: reason, message: message, requeueAfter: after}
}
