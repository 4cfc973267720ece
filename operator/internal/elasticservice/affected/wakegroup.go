package affected

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/index"
)

// WokenWith finds the ElasticServices that are woken with this one.
func (f Finder) WokenWith(_ context.Context, o client.Object) []reconcile.Request {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	return requestsOf(es.Namespace, es.Spec.WakeWith)
}

// Reached finds all that this one reaches by spec.wakeWith: those that may be on a cycle with it.
func (f Finder) Reached(ctx context.Context, o client.Object) []reconcile.Request {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	names, err := wakegroup.Reached(es, index.Named(ctx, f.Client, es.Namespace))
	if err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	return requestsOf(es.Namespace, names)
}

func requestsOf(namespace string, names []string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return requests
}

// ByWakeWith finds the ElasticServices with which this one is woken.
func (f Finder) ByWakeWith(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Find(ctx, f.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.WakeWith: o.GetName()})
}

// WaitingFor finds those of them whose clients may wait for this one.
func (f Finder) WaitingFor(ctx context.Context, o client.Object) []reconcile.Request {
	var list v1alpha1.ElasticServiceList
	// They are only read.
	err := f.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.WakeWith: o.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if es := &list.Items[i]; es.Status.Phase == v1alpha1.PhaseWaking {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)})
		}
	}
	return requests
}

// elasticServices lets ElasticServices through that come after the start, go, or are changed so.
func elasticServices(changed func(before, after *v1alpha1.ElasticService) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
			after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
			return ok1 && ok2 && changed(before, after)
		},
	}
}

// Woke lets through ElasticServices that begin or cease to wake those that they name.
func Woke() predicate.Predicate {
	return elasticServices(func(before, after *v1alpha1.ElasticService) bool {
		was, is := &before.Status, &after.Status
		return len(before.Spec.WakeWith)+len(after.Spec.WakeWith) > 0 &&
			(was.Phase != is.Phase || (was.KeptAwake == nil) != (is.KeptAwake == nil) || wakegroup.WakesOthers(before) != wakegroup.WakesOthers(after) || wakeStamped(before, after) || deletionBegan(before, after))
	})
}

// wakeStamped reports whether a client has just woken one that sleeps: others wake with the stamp,
// before the phase shows it.
func wakeStamped(before, after *v1alpha1.ElasticService) bool {
	return after.Status.Phase == v1alpha1.PhaseAsleep && !before.Status.LastWakeTime.Equal(after.Status.LastWakeTime)
}

func deletionBegan(before, after *v1alpha1.ElasticService) bool {
	return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

// Regrouped lets through ElasticServices that name others than before.
func Regrouped() predicate.Predicate {
	return elasticServices(func(before, after *v1alpha1.ElasticService) bool {
		return !slices.Equal(before.Spec.WakeWith, after.Spec.WakeWith) || deletionBegan(before, after)
	})
}

// CameUp lets through ElasticServices for which others needn't wait any more, or again.
func CameUp() predicate.Predicate {
	return elasticServices(func(before, after *v1alpha1.ElasticService) bool {
		return (before.Status.Phase == v1alpha1.PhaseAwake) != (after.Status.Phase == v1alpha1.PhaseAwake) || deletionBegan(before, after) ||
			before.Annotations[wellknown.KeepAsleepUntilAnnotation] != after.Annotations[wellknown.KeepAsleepUntilAnnotation]
	})
}
