package fronts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/resolvers"
)

// Setup registers the controller.
func (f *Reconciler) Setup(mgr ctrl.Manager) error {
	if f.Now == nil {
		f.Now = time.Now
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("front").
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(sharedByIt), builder.WithPredicates(frontChanged())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(f.ifShared)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(sliceOfFront)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(f.all), builder.WithPredicates(predicate.NewPredicateFuncs(f.Resolvers.Is), resolvers.Changed())).
		WithOptions(controller.Options{RateLimiter: kit.Limiter()})
	if err := b.Complete(reconcilers.Wrap(f.Reporter, "front", "Service", f)); err != nil {
		return fmt.Errorf("set up the controller of fronts: %w", err)
	}
	return nil
}

// sharedByIt finds the fronts that an ElasticService shares, or has shared until now.
func sharedByIt(_ context.Context, o client.Object) []reconcile.Request {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	if key, ok := index.FrontOf(es); ok {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	if s := es.Status.Front; s != nil {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: s.Service}})
	}
	return requests
}

// ifShared finds a Service if it is a front.
func (f *Reconciler) ifShared(ctx context.Context, o client.Object) []reconcile.Request {
	if len(index.Find(ctx, f.Client, client.MatchingFields{index.Front: client.ObjectKeyFromObject(o).String()}, client.Limit(1))) == 0 {
		return nil
	}
	return kit.Itself(ctx, o)
}

// sliceOfFront finds the front that a slice was written for.
func sliceOfFront(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[wellknown.FrontLabel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// frontChanged lets through changes of who shares a front, and on which ports.
func frontChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
			after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
			return ok1 && ok2 && (!front.Same(before.Spec.Front, after.Spec.Front) || !equality.Semantic.DeepEqual(before.Status.Front, after.Status.Front))
		},
	}
}
