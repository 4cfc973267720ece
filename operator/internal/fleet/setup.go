package fleet

import (
	"context"
	"fmt"
	"time"

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

// maxConcurrent bounds the Fleets that are worked on at once.
const maxConcurrent = 4

// breath is how long a pass waits for further changes: Servers change in bursts,
// and one pass after them does for all.
const breath = 50 * time.Millisecond

// moment is how long a pass for the Fleet's own change waits: a wake makes the
// Servers that would follow in the same moment.
const moment = 20 * time.Millisecond

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("fleet").
		// Its status is the controller's own.
		Watches(&v1alpha1.Fleet{}, enqueue(moment, itself), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Server{}, enqueue(breath, fleetOf), builder.WithPredicates(matters())).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent}).
		Complete(reconcilers.Wrap(r.Reporter, "fleet", "Fleet", r))
	if err != nil {
		return fmt.Errorf("set up the Fleet controller: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func itself(o client.Object) (types.NamespacedName, bool) { return client.ObjectKeyFromObject(o), true }

// fleetOf is a Server's Fleet.
func fleetOf(o client.Object) (types.NamespacedName, bool) {
	owner := ownerOf(o)
	if owner == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, true
}

// enqueue asks for a pass a little after something has changed.
func enqueue(later time.Duration, of func(client.Object) (types.NamespacedName, bool)) handler.EventHandler {
	add := func(q queue, objects ...client.Object) {
		for _, o := range objects {
			if key, ok := of(o); ok {
				q.AddAfter(reconcile.Request{NamespacedName: key}, later)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object) },
	}
}

// matters lets through the changes of Servers that a plan or a Fleet's status may
// depend on.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.Server)
		after, ok2 := e.ObjectNew.(*v1alpha1.Server)
		return !ok1 || !ok2 || differ(before, after)
	}}
}

func differ(before, after *v1alpha1.Server) bool {
	was, is := observe(before), observe(after)
	was.resourceVersion = is.resourceVersion
	if was != is {
		return true
	}
	a, b := ownerOf(before), ownerOf(after)
	return (a == nil) != (b == nil) || a != nil && a.UID != b.UID
}
