package fleet

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// maxConcurrent bounds how many Fleets are reconciled at once.
const maxConcurrent = 4

// IndexOwner finds Servers by the UID of the Fleet that owns them.
const IndexOwner = "metadata.ownerReferences.fleet"

// byOwner is that index.
var byOwner = kit.OwnerIndex{Key: IndexOwner, Owner: v1alpha1.GroupVersion.WithKind("Fleet").GroupKind()}

// SetupIndexes adds the index that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return byOwner.Setup(ctx, indexer, &v1alpha1.Server{})
}

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("fleet").
		// Its status is the controller's own.
		Watches(&v1alpha1.Fleet{}, kit.OwnChanges(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Server{}, kit.ChildrenChanges(byOwner.Request), builder.WithPredicates(matters())).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		Complete(reconcilers.Wrap(r.Reporter, "fleet", "Fleet", r))
	if err != nil {
		return fmt.Errorf("set up the Fleet controller: %w", err)
	}
	return nil
}

// matters lets through the changes of Servers that a plan or a Fleet's status may depend on.
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
	a, b := byOwner.Of(before), byOwner.Of(after)
	return (a == nil) != (b == nil) || a != nil && a.UID != b.UID
}
