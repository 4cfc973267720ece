package gametype

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
)

// maxConcurrent bounds the GameTypes that are worked on at once.
const maxConcurrent = 4

// breath is how long a pass waits for further changes: Fleets change in bursts,
// and one pass after them does for all.
const breath = 50 * time.Millisecond

// moment is how long a pass for the GameType's own change waits: a wake makes the
// changes that would follow in the same moment.
const moment = 20 * time.Millisecond

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("gametype").
		// Its status is the controller's own; a deletion is a change of generation. Two of
		// its annotations ask for something.
		Watches(&v1alpha1.GameType{}, enqueue(moment, itself), builder.WithPredicates(
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.Fleet{}, enqueue(breath, func(_ context.Context, o client.Object) (types.NamespacedName, bool) {
			owner := ownerOf(o)
			if owner == nil {
				return types.NamespacedName{}, false
			}
			return types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, true
		})).
		// Those of its name, whosever they are: it waits for a stranger's to go.
		Watches(&corev1.Service{}, enqueue(breath, r.namesake)).
		Watches(&v1alpha1.ElasticService{}, enqueue(breath, r.namesake)).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent}).
		Complete(reconcilers.Wrap(r.Reporter, "gametype", kind.Kind, r))
	if err != nil {
		return fmt.Errorf("set up the GameType controller: %w", err)
	}
	return nil
}

func itself(_ context.Context, o client.Object) (types.NamespacedName, bool) {
	return client.ObjectKeyFromObject(o), true
}

// namesake is the GameType that has an object's name.
func (r *Reconciler) namesake(ctx context.Context, o client.Object) (types.NamespacedName, bool) {
	key := client.ObjectKeyFromObject(o)
	return key, r.Client.Get(ctx, key, &v1alpha1.GameType{}) == nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueue asks for a pass a little after something has changed.
func enqueue(later time.Duration, of func(context.Context, client.Object) (types.NamespacedName, bool)) handler.EventHandler {
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, o := range objects {
			if key, ok := of(ctx, o); ok {
				q.AddAfter(reconcile.Request{NamespacedName: key}, later)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
	}
}
