package backup

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// maxConcurrent bounds how many Backups, and how many Servers, have a pass at a time.
const maxConcurrent = 4

const (
	// indexOpen finds those that haven't come to their end, by the value "true".
	indexOpen = "dormouse.open"
)

// owned finds the Backup of a Job.
var owned = kit.OwnerIndex{Owner: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Backup"}}

// SetupIndexes adds the indexes that the controllers use.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for key, fn := range map[string]func(*v1alpha1.Backup) []string{
		indexOpen: func(b *v1alpha1.Backup) []string {
			if ended(b) {
				return nil
			}
			return []string{"true"}
		},
	} {
		err := indexer.IndexField(ctx, &v1alpha1.Backup{}, key, func(o client.Object) []string {
			b, ok := o.(*v1alpha1.Backup)
			if !ok {
				return nil
			}
			return fn(b)
		})
		if err != nil {
			return fmt.Errorf("add the index %s: %w", key, err)
		}
	}
	return setupNamed(ctx, indexer)
}

// Setup registers the controller of Backups. The channel denied brings Servers whose game was kept from
// starting.
func (r *Reconciler) Setup(mgr ctrl.Manager, denied <-chan event.TypedGenericEvent[*v1alpha1.Server]) error {
	r.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("backup").
		For(&v1alpha1.Backup{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		Watches(&v1alpha1.Backup{}, handler.EnqueueRequestsFromMapFunc(r.siblings), builder.WithPredicates(comesToItsEnd())).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(owned.Request)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.siblings), builder.WithPredicates(gameEnds())).
		Watches(&v1alpha1.GameType{}, handler.EnqueueRequestsFromMapFunc(r.byOwner), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(r.byOwner), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(denied,
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, s *v1alpha1.Server) []reconcile.Request {
				return r.open(ctx, client.ObjectKeyFromObject(s))
			}))).
		Complete(reconcilers.Wrap(r.Reporter, "backup", "Backup", r))
	return kit.Wrapf(err, "set up the Backup controller")
}

// Setup registers the planner. The channel used brings Servers whose disks another Pod than the game's
// has had.
func (p *Planner) Setup(mgr ctrl.Manager, used <-chan event.TypedGenericEvent[*v1alpha1.Server]) error {
	p.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("backupplanner").
		Watches(&v1alpha1.GameType{}, handler.EnqueueRequestsFromMapFunc(servers), builder.WithPredicates(asks())).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(servers), builder.WithPredicates(asks())).
		Watches(&v1alpha1.Backup{}, handler.EnqueueRequestsFromMapFunc(ofBackup), builder.WithPredicates(predicate.Or(comesToItsEnd(), waitsAnew()))).
		Watches(&v1alpha1.Restore{}, handler.EnqueueRequestsFromMapFunc(ofRestore), builder.WithPredicates(goesFirstNoMore())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(p.ofPod), builder.WithPredicates(gameEnds())).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		WatchesRawSource(source.Channel(used, &handler.TypedEnqueueRequestForObject[*v1alpha1.Server]{})).
		Complete(reconcilers.Wrap(p.Reporter, "backupplanner", "Server", p))
	return kit.Wrapf(err, "set up the planner of Backups")
}

// asks lets owners with spec.backup through, when they come, go, or change what they ask for.
func asks() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return asksFor(e.Object) || hasCondition(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return asksFor(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			changed := e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
			return changed && (asksFor(e.ObjectOld) || asksFor(e.ObjectNew))
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// comesToItsEnd lets Backups through that are there first, end, are deleted, or are gone.
func comesToItsEnd() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.Backup)
		after, ok2 := e.ObjectNew.(*v1alpha1.Backup)
		return !ok1 || !ok2 || ended(before) != ended(after) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	}}
}

// waitsAnew lets Backups through that wait for something else than before.
func waitsAnew() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Backup)
			after, ok2 := e.ObjectNew.(*v1alpha1.Backup)
			return ok1 && ok2 && condition.ReasonOf(before.Status.Conditions, conditions.Complete) != condition.ReasonOf(after.Status.Conditions, conditions.Complete)
		},
	}
}

// gameEnds lets the Pods of games through that end or are gone.
func gameEnds() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[wellknown.ServerLabel] != "" }),
		predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, ok1 := e.ObjectOld.(*corev1.Pod)
				after, ok2 := e.ObjectNew.(*corev1.Pod)
				return ok1 && ok2 && !disks.Over(before) && disks.Over(after)
			},
		})
}

// servers are the names of an owner's Servers.
func servers(_ context.Context, o client.Object) []reconcile.Request {
	gt, ok := o.(*v1alpha1.GameType)
	if !ok {
		return kit.Itself(context.Background(), o) //nolint:contextcheck // it needs none
	}
	names := places(gt)
	requests := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: gt.Namespace, Name: name}})
	}
	return requests
}

// ofBackup is a Backup's Server.
func ofBackup(_ context.Context, o client.Object) []reconcile.Request {
	b, ok := o.(*v1alpha1.Backup)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: serverOf(b)}}
}

// ofPod is the Server of a game's Pod, if the copies of its disks are asked for.
func (p *Planner) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	server := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[wellknown.ServerLabel]}
	if gt := o.GetLabels()[wellknown.GameTypeLabel]; gt != "" {
		found := &v1alpha1.GameType{}
		err := p.Client.Get(ctx, types.NamespacedName{Namespace: server.Namespace, Name: gt}, found, client.UnsafeDisableDeepCopy)
		if err != nil || found.Spec.Backup == nil {
			return nil
		}
	} else {
		found := &v1alpha1.Server{}
		err := p.Client.Get(ctx, server, found, client.UnsafeDisableDeepCopy)
		if err != nil || found.Spec.Backup == nil {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: server}}
}

// siblings are the Backups of a Backup's or a Pod's Server that haven't come to their end.
func (r *Reconciler) siblings(ctx context.Context, o client.Object) []reconcile.Request {
	if b, ok := o.(*v1alpha1.Backup); ok {
		return r.open(ctx, serverOf(b))
	}
	server := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[wellknown.ServerLabel]}
	r.gameEnded(server)
	return r.open(ctx, server)
}

// byOwner are the Backups of an owner's Servers that haven't come to their end.
func (r *Reconciler) byOwner(ctx context.Context, o client.Object) []reconcile.Request {
	var list v1alpha1.BackupList
	if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexOpen: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if server := list.Items[i].Spec.Server; server == o.GetName() || strings.HasPrefix(server, o.GetName()+"-") {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// open are the Backups of a Server that haven't come to their end.
func (r *Reconciler) open(ctx context.Context, server types.NamespacedName) []reconcile.Request {
	all, err := backupsOf(ctx, r.Client, server)
	if err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	var requests []reconcile.Request
	for _, b := range all {
		if !ended(b) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}
