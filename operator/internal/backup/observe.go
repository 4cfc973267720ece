package backup

import (
	"cmp"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// mostPods bounds how many of a Backup's Pods are read. There are a few.
const mostPods = 50

// observe reads what next needs: from the cache, but for what a Backup that runs has made.
func (r *Reconciler) observe(ctx context.Context, b *v1alpha1.Backup, m *state) (observed, error) {
	server := serverOf(b)
	set, err := disks.Find(ctx, r.Client, server)
	if err != nil {
		return observed{}, fmt.Errorf("find the disks of Server %s: %w", server, err)
	}
	o := observed{set: set, wanted: r.Table.Wanted(server), stopping: m.stopping}
	switch {
	case b.Status.Phase == v1alpha1.CopyRunning && b.Status.To != nil && b.Status.To.VolumeSnapshot != nil:
		err = r.observeSnapshots(ctx, b, m, &o)
		return o, err
	case b.Status.Phase == v1alpha1.CopyRunning:
		err = r.observeJob(ctx, b, m, &o)
		return o, err
	case !b.DeletionTimestamp.IsZero():
		return o, nil
	}
	template, err := copyjob.ReadTemplate(ctx, r.Client, r.SidecarTemplate)
	if err != nil {
		return o, err //nolint:wrapcheck // it says which
	}
	o.template = template != nil
	all, err := backupsOf(ctx, r.Client, server)
	if err != nil {
		return o, err
	}
	o.earlier, o.yields = earlierThan(b, all), r.yieldsFor(server)
	o.game, err = gameRuns(ctx, r.Client, server)
	return o, err
}

// observeJob reads how the Job of a Backup that runs does.
func (r *Reconciler) observeJob(ctx context.Context, b *v1alpha1.Backup, m *state, o *observed) error {
	job := &batchv1.Job{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: backupJob(b.Name)}, job)
	switch {
	case apierrors.IsNotFound(err):
		if m.made && m.stopping == "" {
			m.stopping = reasons.JobDeleted
		}
		o.stopping = m.stopping
		if m.refused != "" {
			o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: m.refused}
		}
		if o.stopping != "" {
			var left bool
			left, err = r.copying(ctx, client.ObjectKeyFromObject(b))
			o.gone = !left
			return err
		}
		return nil
	case err != nil:
		return fmt.Errorf("read Job %s/%s: %w", b.Namespace, backupJob(b.Name), err)
	case !metav1.IsControlledBy(job, b) && job.DeletionTimestamp.IsZero():
		o.outcome = copyjob.Outcome{Done: true, Failed: true, Message: fmt.Sprintf("There is a Job %s that isn't this Backup's; delete it.", job.Name)}
		return nil
	case !metav1.IsControlledBy(job, b):
		o.made = true // an earlier Backup's of the name, which is about to be gone
		return nil
	}
	o.made, m.made = true, true
	o.outcome, err = copyjob.Read(ctx, r.Live, job)
	if !o.outcome.Done && !job.DeletionTimestamp.IsZero() && m.stopping == "" {
		m.stopping = reasons.JobDeleted
		if o.wanted {
			m.stopping = reasons.GameWoken
		}
	}
	o.stopping = m.stopping
	return err
}

// users asks the API server which Pods have a Server's disks, but for those of a Backup.
func (r *Reconciler) users(ctx context.Context, server types.NamespacedName, backup string) (disks.Users, error) {
	own := func(pod *corev1.Pod) bool { return pod.Labels[wellknown.BackupLabel] == backupLabel(backup) }
	return disks.UsersOf(ctx, r.Live, server, own) //nolint:wrapcheck // it says whose disks
}

// copying reports whether the API server has a Pod of a Backup's Job that hasn't ended.
func (r *Reconciler) copying(ctx context.Context, key types.NamespacedName) (bool, error) {
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{wellknown.BackupLabel: backupLabel(key.Name)}, client.Limit(mostPods))
	if err != nil {
		return false, fmt.Errorf("list the Pods of Backup %s: %w", key, err)
	}
	for i := range pods.Items {
		if !disks.Over(&pods.Items[i]) && pods.Items[i].Labels[wellknown.DisksLabel] != "" {
			return true, nil
		}
	}
	return false, nil
}

// gameRuns reports whether the cache has a Pod of a Server's game that hasn't ended.
func gameRuns(ctx context.Context, cached client.Reader, server types.NamespacedName) (bool, error) {
	pod := &corev1.Pod{}
	err := cached.Get(ctx, server, pod)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Pod %s: %w", server, err)
	}
	return err == nil && !disks.Over(pod) && pod.Labels[wellknown.ServerLabel] == server.Name, nil
}

// earlierThan is the name of a Backup that goes before another one of its Server; empty: none does. One
// that runs goes first, and then the oldest.
func earlierThan(b *v1alpha1.Backup, all []*v1alpha1.Backup) string {
	first := b
	for _, other := range all {
		if ended(other) || other.UID == b.UID {
			continue
		}
		if other.Status.Phase == v1alpha1.CopyRunning {
			return other.Name
		}
		if other.DeletionTimestamp.IsZero() && older(other, first) {
			first = other
		}
	}
	if first == b {
		return ""
	}
	return first.Name
}

func older(a, b *v1alpha1.Backup) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}
