package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// apply takes a step, and returns after how long to look again; 0: when something changes.
func (r *Reconciler) apply(ctx context.Context, original, rst *v1alpha1.Restore, o observed, a action) (time.Duration, error) {
	key := client.ObjectKeyFromObject(rst)
	switch a.step {
	case wait:
		if rst.Status.Phase == v1alpha1.CopyComplete {
			r.release(key) // it only tidies up, and nobody is put out for that
			return time.Minute, nil
		}
		if err := r.makeWay(ctx, rst, o); err != nil {
			return 0, err
		}
		r.release(key)
		return otherRetry, r.say(ctx, original, rst, v1alpha1.CopyPending, a.reason, a.message)
	case begin:
		return 0, r.begin(ctx, original, rst, o, a)
	case run:
		return r.run(ctx, original, rst, o)
	case pause:
		return o.paused, r.say(ctx, original, rst, v1alpha1.CopyRunning, a.reason, a.message)
	case again:
		if !o.outcome.Report.Between {
			r.mu.Lock()
			r.repeated[rst.UID] = true
			r.mu.Unlock()
		}
		return podRetry, r.end(ctx, o.job)
	case watch:
		if err := r.makeWay(ctx, rst, o); err != nil {
			return 0, err
		}
		return otherRetry, r.say(ctx, original, rst, v1alpha1.CopyRunning, a.reason, a.message)
	case complete:
		return 0, r.complete(ctx, original, rst, o, a)
	case fail:
		err := r.say(ctx, original, rst, v1alpha1.CopyFailed, a.reason, a.message)
		if err == nil && !guarded(rst) {
			r.release(key)
		}
		return 0, err
	case giveUp:
		return podRetry, r.say(ctx, original, rst, v1alpha1.CopyRunning, a.reason, a.message)
	case stop:
		return podRetry, r.end(ctx, o.job)
	case settle:
		return r.settle(ctx, original, rst, o)
	case leave:
		return r.leave(ctx, rst, o)
	case noteReady:
		rst.Status.ServerReadyTime = o.readySince
		return 0, r.say(ctx, original, rst, v1alpha1.CopyComplete, reasonOf(rst), messageOf(rst))
	case drop:
		return otherRetry, r.drop(ctx, rst, o)
	case giveWay:
		return podRetry, r.end(ctx, o.job)
	case dropped, dropFailed:
		return r.dropEnded(ctx, original, rst, o, a)
	case rest, hold:
	}
	if over(rst) {
		// A pass by what the cache had before may have taken the disks once more.
		r.release(key)
		return 0, nil
	}
	if r.holds(rst) || rst.Status.Phase == v1alpha1.CopyRunning {
		return podRetry, nil
	}
	if o.triedAgo > 0 {
		return dropRetry, nil
	}
	return 0, nil
}

// makeWay has the Pods that serve the files end, if the Restore waits for nothing else and has for long
// enough.
func (r *Reconciler) makeWay(ctx context.Context, rst *v1alpha1.Restore, o observed) error {
	if o.job != nil {
		return nil
	}
	return disks.MakeWay(ctx, r.Client, r.Disks, serverOf(rst), &o.users, r.Now()) //nolint:wrapcheck // it says which
}

func (r *Reconciler) holds(rst *v1alpha1.Restore) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.held[client.ObjectKeyFromObject(rst)]
	return ok
}

// begin writes that the disks are about to be written: whoever leads next knows it.
func (r *Reconciler) begin(ctx context.Context, original, rst *v1alpha1.Restore, o observed, a action) error {
	// What lacks is said while the game may still start.
	if err := r.ready(ctx, o.set, o.backup); err != nil {
		return err
	}
	if err := r.keep(ctx, o.set); err != nil {
		return err
	}
	if !guarded(rst) {
		if err := kit.AddFinalizer(ctx, r.Client, rst, finalizer); err != nil {
			return kit.Wrapf(client.IgnoreNotFound(err), "guard Restore %s", client.ObjectKeyFromObject(rst))
		}
		original.Finalizers, original.ResourceVersion = rst.Finalizers, rst.ResourceVersion
	}
	rst.Status.StartTime = &metav1.Time{Time: r.Now()}
	rst.Status.Disks, rst.Status.Pod = nil, disks.Taken(o.set.Spec)
	for i := range o.set.Spec.Storage {
		rst.Status.Disks = append(rst.Status.Disks, o.set.Spec.Storage[i].Name)
	}
	return r.say(ctx, original, rst, v1alpha1.CopyRunning, a.reason, a.message)
}

// confirm looks whether the Restore is as the cache has it: what is done twice can't be undone.
func (r *Reconciler) confirm(ctx context.Context, rst *v1alpha1.Restore) error {
	is := &v1alpha1.Restore{}
	key := client.ObjectKeyFromObject(rst)
	if err := r.Live.Get(ctx, key, is); err != nil {
		return kit.Wrapf(client.IgnoreNotFound(err), "read Restore %s", key)
	}
	if is.UID != rst.UID || is.ResourceVersion != rst.ResourceVersion {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("restores").GroupResource(), rst.Name, errors.New("it has changed"))
	}
	return nil
}

func (r *Reconciler) options(rst *v1alpha1.Restore, o observed) copyjob.Options {
	return copyjob.Options{
		Name: jobName(rst), Owner: *metav1.NewControllerRef(rst, v1alpha1.GroupVersion.WithKind("Restore")), Set: o.set,
	}
}

// run makes the Job that writes the disks. That one may be there is written first, so that whoever leads
// next knows it, too. Where nothing could be made the Restore fails, and nothing has happened: players
// needn't wait until somebody has mended what is in the way.
func (r *Reconciler) run(ctx context.Context, original, rst *v1alpha1.Restore, o observed) (time.Duration, error) {
	if err := r.confirm(ctx, rst); err != nil {
		return 0, err
	}
	untouched := reasonOf(rst) == reasons.Preparing
	options, err := r.fromBackup(ctx, r.options(rst, o), o.backup, idOf(rst))
	if err == nil && untouched {
		if err := r.say(ctx, original, rst, v1alpha1.CopyRunning, reasons.Restoring, "The disks are written."); err != nil {
			return 0, err
		}
		original = rst.DeepCopy()
	}
	if err == nil {
		err = r.start(ctx, options)
	}
	because := why(err)
	switch {
	case because == "":
		return otherRetry, err
	case untouched:
		return 0, r.say(ctx, original, rst, v1alpha1.CopyFailed, reasons.RestoreFailed, because+" The disks are as they were.")
	}
	return 0, lacks("%s", because)
}

// why is what an error says that somebody has to bring about, or that the API server refuses; empty:
// it is of another kind.
func why(err error) string {
	if refusal.Is(err) {
		return "The API server refuses it: " + text.Bounded(refusal.Words(err)) + "."
	}
	return lackOf(err)
}

func (r *Reconciler) complete(ctx context.Context, original, rst *v1alpha1.Restore, o observed, a action) error {
	if o.set != nil {
		if err := r.filled(ctx, o.set, "backup/"+rst.Spec.Backup); err != nil {
			return err
		}
	}
	rst.Status.PreviousKept, rst.Status.Files = true, o.outcome.Report.Files
	return r.say(ctx, original, rst, v1alpha1.CopyComplete, a.reason, a.message)
}

// settle makes the Job that brings the disks of a Restore that is given up out of between, once the one that
// wrote them is gone.
func (r *Reconciler) settle(ctx context.Context, original, rst *v1alpha1.Restore, o observed) (time.Duration, error) {
	if err := r.confirm(ctx, rst); err != nil {
		return 0, err
	}
	if still, err := r.jobStays(ctx, rst, writes); still || err != nil {
		return podRetry, err
	}
	there, err := r.existing(ctx, o.set)
	if err != nil {
		return 0, err
	}
	if len(there.Spec.Storage) > 0 {
		options := r.options(rst, o)
		options.Name, options.Set, options.Args = copyjob.Name(settles, rst.Name), there, args("settle", there, idOf(rst))
		err = r.start(ctx, options)
	}
	if len(there.Spec.Storage) == 0 || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		if rst.DeletionTimestamp.IsZero() {
			a := lost(rst, o)
			return 0, r.say(ctx, original, rst, v1alpha1.CopyFailed, a.reason, a.message)
		}
		return r.leave(ctx, rst, o) // with the namespace all disks go
	}
	if because := why(err); because != "" {
		return otherRetry, r.say(ctx, original, rst, v1alpha1.CopyRunning, givenUpOr(rst, reasons.Restoring), because+" The Restore ends once that is mended: it may have left the disks half moved.")
	}
	return podRetry, err
}

// jobStays deletes a Job of a Restore, and reports whether it, or a Pod of it, may write still. The cache may
// be behind: what the API server says counts.
func (r *Reconciler) jobStays(ctx context.Context, rst *v1alpha1.Restore, prefix string) (bool, error) {
	name := copyjob.Name(prefix, rst.Name)
	job, err := r.job(ctx, rst.Namespace, name, rst.UID)
	if err != nil && lackOf(err) == "" {
		return false, err
	}
	return r.ending(ctx, serverOf(rst), name, job)
}

// leave removes what only the copying needed, once its Pods have ended, and lets the disks go.
func (r *Reconciler) leave(ctx context.Context, rst *v1alpha1.Restore, o observed) (time.Duration, error) {
	if rst.Status.Phase == v1alpha1.CopyRunning {
		// Its first Job may have been made since.
		if err := r.confirm(ctx, rst); err != nil {
			return 0, err
		}
	}
	for _, prefix := range []string{writes, settles} {
		if still, err := r.jobStays(ctx, rst, prefix); still || err != nil {
			return podRetry, err
		}
	}
	names := slices.Clone(rst.Status.Disks)
	if o.backup != nil && o.backup.Status.To != nil && o.backup.Status.To.VolumeSnapshot == nil {
		names = nil
	}
	if err := r.tidy(ctx, rst.Namespace, copyjob.Name(writes, rst.Name), rst.UID, names); err != nil {
		return 0, err
	}
	r.release(client.ObjectKeyFromObject(rst))
	r.mu.Lock()
	delete(r.repeated, rst.UID)
	delete(r.pauses, rst.UID)
	r.mu.Unlock()
	err := kit.RemoveFinalizer(ctx, r.Client, rst, finalizer)
	return 0, kit.Wrapf(client.IgnoreNotFound(err), "let Restore %s go", client.ObjectKeyFromObject(rst))
}

func (r *Reconciler) drop(ctx context.Context, rst *v1alpha1.Restore, o observed) error {
	if err := r.confirm(ctx, rst); err != nil {
		return err
	}
	options := r.options(rst, o)
	options.Args = args("drop-previous", o.set, idOf(rst))
	return r.start(ctx, options)
}

// dropEnded writes that what was there before isn't any more, or has it tried again later.
func (r *Reconciler) dropEnded(ctx context.Context, original, rst *v1alpha1.Restore, o observed, a action) (time.Duration, error) {
	if a.step == dropped {
		rst.Status.PreviousKept = false
		if err := r.say(ctx, original, rst, v1alpha1.CopyComplete, reasonOf(rst), messageOf(rst)); err != nil {
			return 0, err
		}
	}
	if err := r.end(ctx, o.job); err != nil {
		return 0, err
	}
	r.release(client.ObjectKeyFromObject(rst))
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.step == dropped {
		delete(r.tried, rst.UID)
		return 0, nil
	}
	if _, said := r.tried[rst.UID]; !said {
		kit.Emit(r.Events, rst, kit.Warning("PreviousNotDropped", "DropPrevious", "What was on the disks before can't be deleted, and stays for now: %s", text.LowerFirst(a.message)))
	}
	r.tried[rst.UID] = r.Now()
	return dropRetry, nil
}

func reasonOf(rst *v1alpha1.Restore) string {
	if len(rst.Status.Conditions) == 0 {
		return "Restored"
	}
	return rst.Status.Conditions[0].Reason
}

func messageOf(rst *v1alpha1.Restore) string {
	if len(rst.Status.Conditions) == 0 {
		return fmt.Sprintf("The disks have what Backup %s has.", rst.Spec.Backup)
	}
	return rst.Status.Conditions[0].Message
}
