package backup

import (
	"cmp"
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// finalizer keeps a deleted Backup until what it kept is deleted.
const finalizer = wellknown.BackupFinalizer

const (
	// forgetFor bounds how long it is tried to delete what a deleted Backup kept, once nothing is in the way.
	forgetFor = 10 * time.Minute
	// forgetTries lets a Job try again for about as long: its tries come ever later.
	forgetTries = 6
)

// forgetJob is the name of the Job that deletes what a Backup kept.
func forgetJob(backup string) string { return copyjob.Name("forget-", backup) }

// forget deletes what a deleted Backup kept, unless its annotation says otherwise, and lets it go. What can't be deleted may stay: a Backup
// that could never be deleted would keep its namespace from that, too.
func (r *Reconciler) forget(ctx context.Context, b *v1alpha1.Backup, o observed) (reconcile.Result, error) {
	r.release(b)
	if !controllerutil.ContainsFinalizer(b, finalizer) {
		return reconcile.Result{}, nil
	}
	left, requeueAfter, err := r.forgotten(ctx, b, o)
	if err != nil || requeueAfter > 0 {
		return reconcile.Result{RequeueAfter: requeueAfter}, err
	}
	if err := kit.RemoveFinalizer(ctx, r.Client, b, finalizer); err != nil {
		return reconcile.Result{}, kit.Wrapf(client.IgnoreNotFound(err), "let Backup %s go", client.ObjectKeyFromObject(b))
	}
	if left != "" {
		kit.Emit(r.Events, b, kit.Warning("BackupNotForgotten", "Forget", "The copy may still be there: %s", left))
	}
	return reconcile.Result{}, nil
}

// forgotten deletes what a Backup kept; left is why it may still be there, and requeueAfter is above
// zero while it isn't known.
func (r *Reconciler) forgotten(ctx context.Context, b *v1alpha1.Backup, o observed) (left string, requeueAfter time.Duration, err error) {
	keep := b.Annotations[wellknown.KeepArchiveAnnotation] == "true"
	switch to := b.Status.To; {
	case to == nil:
		return "", 0, nil // it never began
	case keep && to.VolumeSnapshot != nil:
		// It doesn't go before that, however late it is: they would go with it.
		return "", 0, r.leaveSnapshots(ctx, b)
	case keep:
		return "", 0, nil
	case to.VolumeSnapshot != nil:
		return r.unlessLate(b, o, r.deleteSnapshots(ctx, b))
	case to.Claim != nil:
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: to.Claim.Name}, &corev1.PersistentVolumeClaim{})
		if apierrors.IsNotFound(err) {
			return "PersistentVolumeClaim " + to.Claim.Name + " is gone.", 0, nil
		}
		if err != nil {
			return "", 0, kit.Wrapf(err, "read PersistentVolumeClaim %s/%s", b.Namespace, to.Claim.Name)
		}
	}
	job := &batchv1.Job{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: forgetJob(b.Name)}, job)
	switch {
	case apierrors.IsNotFound(err):
		err = r.makeForgetJob(ctx, b, o)
		switch {
		case err == nil:
			return "", runningLook, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return "the namespace is being deleted.", 0, nil
		}
		return r.unlessLate(b, o, err)
	case err != nil:
		return "", 0, kit.Wrapf(err, "read Job %s/%s", b.Namespace, forgetJob(b.Name))
	}
	outcome, err := copyjob.Read(ctx, r.Live, job)
	switch {
	case err != nil:
		return "", 0, err
	case metav1.IsControlledBy(job, b) && outcome.Done && outcome.Failed:
		return outcome.Message, 0, nil
	case metav1.IsControlledBy(job, b) && outcome.Done:
		return "", 0, nil
	case r.late(b, o):
		return "Job " + job.Name + " doesn't end. " + outcome.Message, 0, nil
	}
	return "", runningLook, nil
}

// unlessLate has it tried again to delete what a Backup kept, after an error, or left is that error.
func (r *Reconciler) unlessLate(b *v1alpha1.Backup, o observed, err error) (left string, requeueAfter time.Duration, _ error) {
	switch {
	case err == nil:
		return "", 0, nil
	case r.late(b, o):
		return text.Bounded(refusal.Words(err)) + ".", 0, nil
	case refusal.Is(err):
		return "", time.Minute, nil
	}
	return "", 0, err
}

// late reports whether it was tried for long enough to delete what a Backup kept.
func (r *Reconciler) late(b *v1alpha1.Backup, o observed) bool {
	return r.Now().Sub(b.DeletionTimestamp.Time) > forgetWithin(b, o.set)+time.Minute
}

// forgetWithin is how long it is tried to delete what a Backup kept. Another Server's copy may have the disk for
// copies, on another node: it comes to its end first.
func forgetWithin(b *v1alpha1.Backup, set *disks.Set) time.Duration {
	if b.Status.To.Claim == nil {
		return forgetFor
	}
	return timeoutOf(set) + forgetFor
}

// makeForgetJob makes the Job that deletes the archive. It has the user of the game that wrote it, and
// none of its disks.
func (r *Reconciler) makeForgetJob(ctx context.Context, b *v1alpha1.Backup, o observed) error {
	template, err := copyjob.ReadTemplate(ctx, r.Client, r.SidecarTemplate)
	if err != nil || template == nil {
		return cmp.Or(err, errNoTemplate)
	}
	pod := corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}}
	if as := b.Status.RunAs; as != nil {
		pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: as.User, RunAsGroup: as.Group, FSGroup: as.FSGroup}
	}
	if o.set != nil { // where copies may be made, they may be deleted
		game := &o.set.Spec.Template.Spec
		pod.Tolerations, pod.NodeSelector, pod.ImagePullSecrets = game.Tolerations, game.NodeSelector, game.ImagePullSecrets
	}
	job := copyjob.Build(copyjob.Options{
		Namespace: b.Namespace, Name: forgetJob(b.Name), Owner: ownerOf(b), Template: template,
		Set:    &disks.Set{Namespace: b.Namespace, Name: b.Spec.Server, Spec: &v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
		Labels: map[string]string{wellknown.BackupLabel: backupLabel(b.Name)},
		Args:   append([]string{"forget", "--at=" + copyjob.URL(b)}, copyjob.Flags(b.Status.To)...),
		Target: b.Status.To, Timeout: forgetWithin(b, o.set),
	})
	job.Spec.BackoffLimit = new(int32(forgetTries))
	err = r.Client.Create(ctx, job)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return kit.Wrapf(err, "create Job %s", client.ObjectKeyFromObject(job))
}
