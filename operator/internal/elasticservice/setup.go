package elasticservice

import (
	"context"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/elasticservice/affected"
	"dormouse.dev/dormouse/operator/internal/kindwatch"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/resolvers"
)

// maxConcurrent bounds how many objects are reconciled at once. A pass waits for the network a
// few times, so many fit on a core.
const maxConcurrent = 16

// debounce is how long a pass that nobody waits for is delayed. A wake causes a burst of
// changes: the stamp, the scale, the pod's address, its readiness.
const debounce = 50 * time.Millisecond

// Setup registers the controller. The channel changed brings the keys of objects whose idle
// triggers changed.
func (r *Reconciler) Setup(mgr ctrl.Manager, changed <-chan event.TypedGenericEvent[*v1alpha1.ElasticService]) error {
	r.Init()
	changes := &resolverChanges{wait: resolversSettle, all: r.all}
	find := affected.Finder{Client: r.Client}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("elasticservice").
		// The first passes are asked for once, of each ElasticService, and not for each object
		// that belongs to it.
		WithEventFilter(predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
			_, first := e.Object.(*v1alpha1.ElasticService)
			return first || !e.IsInInitialList
		}}).
		For(&v1alpha1.ElasticService{}, builder.WithPredicates(predicate.GenerationChangedPredicate{}, predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
		})).
		Watches(&v1alpha1.ElasticService{}, r.creations(), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WatchesRawSource(r.backlog.Source()).
		WatchesRawSource(r.firsts.Source()).
		WatchesRawSource(r.allocationChanges()).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: r.passes.Limiter()}).
		// Wakes are stamped into the status, and neither those nor finalizers change the
		// generation.
		Watches(&v1alpha1.ElasticService{}, kit.Debounce{Wait: debounce, Find: kit.Itself}.Handler(), builder.WithPredicates(afterStart())).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(find.BySibling), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
				after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
				return ok1 && ok2 && before.Spec.ScaleTargetRef != after.Spec.ScaleTargetRef
			},
		})).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(find.ByHost), builder.WithPredicates(affected.HostsMoved())).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(find.WokenWith), builder.WithPredicates(affected.Woke())).
		Watches(&v1alpha1.ElasticService{}, kit.Debounce{Wait: debounce, Find: find.Reached, Before: true}.Handler(), builder.WithPredicates(affected.Regrouped())).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(find.WaitingFor), builder.WithPredicates(affected.CameUp())).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(r.inTurn(find.ByWakeWith)), builder.WithPredicates(affected.CameUp())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(find.ByService)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(find.ByFront)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(find.ByNodePort)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(find.ByPlayerList)).
		Watches(&discoveryv1.EndpointSlice{}, kit.Debounce{Wait: debounce, Find: find.ByService, Urgent: affected.NoneLeft}.Handler(), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
					r.echoes.Forget(e.ObjectOld)
				}
				return !r.echoes.Heard(time.Now(), e.ObjectNew)
			},
			DeleteFunc: func(e event.DeleteEvent) bool { r.echoes.Forget(e.Object); return true },
		})).
		Watches(&corev1.Pod{}, changes.handler(r.onlyOne), builder.WithPredicates(predicate.NewPredicateFuncs(r.Resolvers.Is), resolvers.Changed())).
		Watches(&v1alpha1.Server{}, kit.Debounce{Wait: debounce, Find: find.ByServer}.Handler(), builder.WithPredicates(affected.ServerChanged())).
		Watches(&v1alpha1.Server{}, kit.Debounce{Wait: debounce, Find: find.ByTarget("Server")}.Handler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Fleet{}, kit.Debounce{Wait: debounce, Find: find.ByTarget("Fleet")}.Handler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GameType{}, kit.Debounce{Wait: debounce, Find: find.ByTarget("GameType")}.Handler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(find.ByHostPort), builder.WithPredicates(affected.HostPortsChanged())).
		Watches(&v1alpha1.GameAutoscaler{}, kit.Debounce{Wait: debounce, Find: find.ByAutoscaler, Before: true}.Handler(), builder.WithPredicates(affected.KeptAwakeChanged())).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, kit.Debounce{Wait: debounce, Find: find.ByHPA}.Handler(), builder.WithPredicates(affected.BoundsChanged())).
		WatchesRawSource(r.Autoscalers.Source(find.ByScaledObject, r.backlog.Add)).
		WatchesRawSource(r.Targets.Source(r.targetChanged(find))).
		WatchesRawSource(source.Channel(changed, &handler.TypedEnqueueRequestForObject[*v1alpha1.ElasticService]{}))
	if err := b.Complete(reconcilers.Wrap(r.Reporter, "elasticservice", "ElasticService", r)); err != nil {
		return fmt.Errorf("set up the ElasticService controller: %w", err)
	}
	return nil
}

// inTurn has passes made of what is found as nobody waits for them: any number may name one service.
func (r *Reconciler) inTurn(find handler.MapFunc) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		r.backlog.Add(find(ctx, o)...)
		return nil
	}
}

// targetChanged asks for passes of the ElasticServices of a target whose spec changed. Of those
// that are listed, once a kind is watched, there may be many.
func (r *Reconciler) targetChanged(find affected.Finder) func(context.Context, kindwatch.Change, kindwatch.Queue) {
	return func(ctx context.Context, c kindwatch.Change, q kindwatch.Queue) {
		if c.Object == nil {
			r.backlog.Add(reconcile.Request{NamespacedName: c.Namer})
			return
		}
		requests := find.ByTarget(c.Kind.Kind)(ctx, c.Object)
		if c.Listed {
			r.backlog.Add(requests...)
			return
		}
		for _, request := range requests {
			q.AddAfter(request, debounce)
		}
	}
}

// afterStart lets through what isn't there when the controller starts.
func afterStart() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}
}
