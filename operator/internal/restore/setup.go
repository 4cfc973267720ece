package restore

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// maxConcurrent bounds how many Restores, and how many disks to fill, are worked on at once.
const maxConcurrent = 4

// indexBackup finds Restores by their Backup.
const indexBackup = "spec.backup"

// SetupIndexes adds the indexes that the controllers here use, beside those of package copies.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.Restore{}, indexBackup, func(o client.Object) []string {
		return []string{o.(*v1alpha1.Restore).Spec.Backup}
	})
	return kit.Wrapf(err, "add the index %s", indexBackup)
}

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	again := make(chan event.TypedGenericEvent[*v1alpha1.Restore])
	if err := mgr.Add(leaderRunnable(func(ctx context.Context) error { return pass(ctx, r.again, again) })); err != nil {
		return fmt.Errorf("set up the Restore controller: %w", err)
	}
	onlyDeleted := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(e event.DeleteEvent) bool { return e.Object.GetLabels()[wellknown.DisksLabel] != "" },
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("restore").
		For(&v1alpha1.Restore{}).
		Owns(&batchv1.Job{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.by(ctx, o.GetNamespace(), copies.IndexServer, o.GetName())
		})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.by(ctx, o.GetNamespace(), copies.IndexServer, o.GetLabels()[wellknown.DisksLabel])
		}), builder.WithPredicates(onlyDeleted)).
		Watches(&v1alpha1.Backup{}, handler.EnqueueRequestsFromMapFunc(r.byBackup)).
		Watches(&v1alpha1.GameType{}, handler.EnqueueRequestsFromMapFunc(r.byGameType), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(again, &handler.TypedEnqueueRequestForObject[*v1alpha1.Restore]{})).
		Complete(reconcilers.Wrap(r.Reporter, "restore", "Restore", r))
	return kit.Wrapf(err, "set up the Restore controller")
}

// Denied tells that a Server's game waits for its disks. It doesn't block.
func (r *Reconciler) Denied(server types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, held := range r.held {
		if held != server {
			continue
		}
		select {
		case r.again <- key:
		default: // it looks by itself, too
		}
	}
}

// by finds Restores by an index.
func (r *Reconciler) by(ctx context.Context, namespace, index, value string) []reconcile.Request {
	var list v1alpha1.RestoreList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	return unfinished(list.Items, func(*v1alpha1.Restore) bool { return true })
}

// byBackup finds the Restores of a Backup, and those that wait for it.
func (r *Reconciler) byBackup(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.by(ctx, o.GetNamespace(), indexBackup, o.GetName()), r.by(ctx, o.GetNamespace(), copies.IndexServer, copies.ServerOf(o).Name)...)
}

// byGameType finds the Restores of a GameType's places.
func (r *Reconciler) byGameType(ctx context.Context, o client.Object) []reconcile.Request {
	var list v1alpha1.RestoreList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	return unfinished(list.Items, func(rst *v1alpha1.Restore) bool { return strings.HasPrefix(rst.Spec.Server, o.GetName()+"-") })
}

// unfinished are the Restores among some for which anything is left to do.
func unfinished(all []v1alpha1.Restore, among func(*v1alpha1.Restore) bool) []reconcile.Request {
	var requests []reconcile.Request
	for i := range all {
		rst := &all[i]
		if !over(rst) && among(rst) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rst)})
		}
	}
	return requests
}

// leaderRunnable runs on the leader.
type leaderRunnable func(ctx context.Context) error

func (f leaderRunnable) Start(ctx context.Context) error { return f(ctx) }

// pass passes keys on to the controller's queue, until ctx ends.
func pass(ctx context.Context, from <-chan types.NamespacedName, to chan<- event.TypedGenericEvent[*v1alpha1.Restore]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case key := <-from:
			rst := &v1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			select {
			case <-ctx.Done():
				return nil
			case to <- event.TypedGenericEvent[*v1alpha1.Restore]{Object: rst}:
			}
		}
	}
}
