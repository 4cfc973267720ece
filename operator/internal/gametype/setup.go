package gametype

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// maxConcurrent bounds how many GameTypes are reconciled at once.
const maxConcurrent = 4

// IndexOwner finds Fleets by the UID of the GameType that owns them.
const IndexOwner = "metadata.ownerReferences.gametype"

// byOwner is that index.
var byOwner = kit.OwnerIndex{Key: IndexOwner, Owner: kind.GroupKind()}

// SetupIndexes adds the index that the controller uses beside the Fleets' own.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return byOwner.Setup(ctx, indexer, &v1alpha1.Fleet{})
}

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("gametype").
		// Its status is the controller's own; a deletion changes the generation. Some of its
		// annotations are requests.
		Watches(&v1alpha1.GameType{}, kit.OwnChanges(), builder.WithPredicates(
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&v1alpha1.Fleet{}, kit.ChildrenChanges(byOwner.Request)).
		// All of its name, whoever owns them: it waits for a foreign one to go.
		Watches(&corev1.Service{}, kit.ChildrenChanges(r.namesake)).
		Watches(&v1alpha1.ElasticService{}, kit.ChildrenChanges(r.namesake)).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		Complete(reconcilers.Wrap(r.Reporter, "gametype", kind.Kind, r))
	if err != nil {
		return fmt.Errorf("set up the GameType controller: %w", err)
	}
	return nil
}

// namesake asks for a pass of the GameType that has an object's name.
func (r *Reconciler) namesake(ctx context.Context, o client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(o)
	if r.Client.Get(ctx, key, &v1alpha1.GameType{}, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
