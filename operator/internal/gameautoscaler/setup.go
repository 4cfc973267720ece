package gameautoscaler

import (
	"context"
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// maxConcurrent bounds how many GameAutoscalers are evaluated at once. No pass waits for a webhook, but
// one that changes something asks the operator's other replicas.
const maxConcurrent = 16

// ownerLabel is on the Fleets of a GameType.
const ownerLabel = wellknown.GameTypeLabel

// indexHPA finds HorizontalPodAutoscalers by kind/name of what they scale.
const indexHPA = "spec.scaleTargetRef.hpa"

// CachedObjects are the objects of other controllers that this one reads, with how they are
// cached.
func CachedObjects() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&autoscalingv2.HorizontalPodAutoscaler{}: {Transform: slimHPA}}
}

// slimHPA keeps what a HorizontalPodAutoscaler scales, and between which bounds.
func slimHPA(o any) (any, error) {
	hpa, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return o, nil
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hpa.Namespace, Name: hpa.Name, UID: hpa.UID, ResourceVersion: hpa.ResourceVersion, OwnerReferences: hpa.OwnerReferences,
		},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: hpa.Spec.ScaleTargetRef, MinReplicas: hpa.Spec.MinReplicas, MaxReplicas: hpa.Spec.MaxReplicas,
		},
	}, nil
}

// SetupIndexes adds the index that only this controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &autoscalingv2.HorizontalPodAutoscaler{}, indexHPA, func(o client.Object) []string {
		hpa, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok || !strings.HasPrefix(hpa.Spec.ScaleTargetRef.APIVersion, v1alpha1.GroupVersion.Group+"/") {
			return nil // Agones, say, has Fleets of its own
		}
		return []string{hpa.Spec.ScaleTargetRef.Kind + "/" + hpa.Spec.ScaleTargetRef.Name}
	})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", indexHPA, err)
	}
	return nil
}

// Setup registers the controller. The channel answered brings the keys of objects whose webhook
// has answered.
func (r *Reconciler) Setup(mgr ctrl.Manager, answered <-chan event.TypedGenericEvent[*v1alpha1.GameAutoscaler]) error {
	r.Init()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("gameautoscaler").
		For(&v1alpha1.GameAutoscaler{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		// One takes over when another one of its target is gone.
		Watches(&v1alpha1.GameAutoscaler{}, kit.Debounce{Wait: kit.OwnDebounce, Find: r.bySibling, Before: true}.Handler(),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GameType{}, kit.Debounce{Wait: kit.ChildrenDebounce, Find: r.byTarget("GameType")}.Handler(), builder.WithPredicates(matters())).
		Watches(&v1alpha1.Fleet{}, kit.Debounce{Wait: kit.ChildrenDebounce, Find: r.byTarget("Fleet")}.Handler(), builder.WithPredicates(matters())).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, kit.Debounce{Wait: kit.OwnDebounce, Find: r.byHPA, Before: true}.Handler(), builder.WithPredicates(targetMoved())).
		WatchesRawSource(source.Channel(answered, &handler.TypedEnqueueRequestForObject[*v1alpha1.GameAutoscaler]{})).
		Complete(reconcilers.Wrap(r.Reporter, "gameautoscaler", "GameAutoscaler", r))
	if err != nil {
		return fmt.Errorf("set up the GameAutoscaler controller: %w", err)
	}
	return nil
}

// targetMoved lets through HorizontalPodAutoscalers that come, go, or scale something else.
func targetMoved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*autoscalingv2.HorizontalPodAutoscaler)
		after, ok2 := e.ObjectNew.(*autoscalingv2.HorizontalPodAutoscaler)
		return !ok1 || !ok2 || before.Spec.ScaleTargetRef != after.Spec.ScaleTargetRef
	}}
}

func (r *Reconciler) byTarget(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.scaling(ctx, o.GetNamespace(), kind, o.GetName())
	}
}

func (r *Reconciler) byHPA(ctx context.Context, o client.Object) []reconcile.Request {
	hpa, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return nil
	}
	return r.scaling(ctx, hpa.Namespace, hpa.Spec.ScaleTargetRef.Kind, hpa.Spec.ScaleTargetRef.Name)
}

func (r *Reconciler) bySibling(ctx context.Context, o client.Object) []reconcile.Request {
	gas, ok := o.(*v1alpha1.GameAutoscaler)
	if !ok {
		return nil
	}
	ref := refOf(gas)
	return r.scaling(ctx, ref.Namespace, ref.Kind, ref.Name)
}

// scaling finds the GameAutoscalers of a target.
func (r *Reconciler) scaling(ctx context.Context, namespace, kind, name string) []reconcile.Request {
	list, err := index.AutoscalersOf(ctx, r.Client, namespace, kind, name)
	if err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	requests := make([]reconcile.Request, 0, len(list))
	for i := range list {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list[i])})
	}
	return requests
}

// matters lets through the changes of targets that a plan may depend on.
func matters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		if !e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp()) || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
			return true
		}
		switch before := e.ObjectOld.(type) {
		case *v1alpha1.GameType:
			after, ok := e.ObjectNew.(*v1alpha1.GameType)
			a, b := &before.Status, &after.Status
			return !ok || a.Replicas != b.Replicas || a.ReadyReplicas != b.ReadyReplicas || a.AllocatedReplicas != b.AllocatedReplicas ||
				a.Players != b.Players || a.Capacity != b.Capacity || !equality.Semantic.DeepEqual(a.Conditions, b.Conditions)
		case *v1alpha1.Fleet:
			after, ok := e.ObjectNew.(*v1alpha1.Fleet)
			a, b := &before.Status, &after.Status
			return !ok || a.Replicas != b.Replicas || a.ReadyReplicas != b.ReadyReplicas || a.AllocatedReplicas != b.AllocatedReplicas ||
				a.Players != b.Players || a.Capacity != b.Capacity || !equality.Semantic.DeepEqual(a.Conditions, b.Conditions)
		}
		return true
	}}
}
