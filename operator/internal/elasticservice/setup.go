package elasticservice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/internal/podstatus"
)

// watchedTargets are the kinds of target that are watched, by metadata alone.
// Targets of other kinds work too: a change of their scale shows in their pods.
var watchedTargets = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "dormouse.dev", Version: "v1alpha1", Kind: "Fleet"},
	{Group: "dormouse.dev", Version: "v1alpha1", Kind: "GameType"},
}

// WatchedTargets are the kinds of target that are watched, as the cache has them.
func WatchedTargets() []*metav1.PartialObjectMetadata {
	list := make([]*metav1.PartialObjectMetadata, 0, len(watchedTargets))
	for _, gvk := range watchedTargets {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(gvk)
		list = append(list, meta)
	}
	return list
}

// maxConcurrent bounds the objects that are worked on at once. A pass waits for
// the network a few times, so that many fit on a core.
const maxConcurrent = 16

// Setup registers the controller. changed brings the keys of objects whose idle
// triggers changed.
func (r *Reconciler) Setup(mgr ctrl.Manager, changed <-chan event.TypedGenericEvent[*v1alpha1.ElasticService]) error {
	r.Init()
	b := ctrl.NewControllerManagedBy(mgr).
		Named("elasticservice").
		For(&v1alpha1.ElasticService{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent}).
		// Wakes are stamped into the status, and finalizers are no generation.
		Watches(&v1alpha1.ElasticService{}, soon(itself, nil)).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(r.bySibling), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
				after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
				return ok1 && ok2 && before.Spec.ScaleTargetRef != after.Spec.ScaleTargetRef
			},
		})).
		Watches(&v1alpha1.ElasticService{}, handler.EnqueueRequestsFromMapFunc(r.byHost), builder.WithPredicates(hostsMoved())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.byService)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.byFront)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.byNodePort)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.byPlayerList)).
		Watches(&discoveryv1.EndpointSlice{}, soon(r.byService, noneLeft)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.NewPredicateFuncs(r.isResolver), resolverChanged())).
		Watches(&v1alpha1.Server{}, soon(r.byServer, nil), builder.WithPredicates(serverChanged())).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(r.byHostPort), builder.WithPredicates(hostPortsChanged())).
		WatchesRawSource(source.Channel(changed, &handler.TypedEnqueueRequestForObject[*v1alpha1.ElasticService]{}))
	for _, meta := range WatchedTargets() {
		b = b.WatchesMetadata(meta, soon(r.byTarget(meta.Kind), nil),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if err := b.Complete(reconcilers.Wrap(r.Reporter, "elasticservice", "ElasticService", r)); err != nil {
		return fmt.Errorf("set up the ElasticService controller: %w", err)
	}
	return r.setupFronts(mgr)
}

// byService finds the ElasticServices that a Service, or a slice that is about
// one, matters to: the user's own, the private one beside it, or a stranger with
// that one's name.
func (r *Reconciler) byService(ctx context.Context, o client.Object) []reconcile.Request {
	if public := o.GetLabels()[v1alpha1.PrivateServiceLabel]; public != "" {
		return r.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{IndexService: public})
	}
	return append(r.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{IndexService: o.GetName()}),
		r.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexPrivate: o.GetName()})...)
}

// bySibling finds the other ElasticServices of the same Service or target: one of them
// takes over from one that is gone.
func (r *Reconciler) bySibling(ctx context.Context, o client.Object) []reconcile.Request {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	ref := es.Spec.ScaleTargetRef
	return append(r.find(ctx, client.InNamespace(es.Namespace), client.MatchingFields{IndexService: es.Spec.Service}),
		r.find(ctx, client.InNamespace(es.Namespace), client.MatchingFields{indexTarget: ref.Kind + "/" + ref.Name})...)
}

func (r *Reconciler) byTarget(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexTarget: kind + "/" + o.GetName()})
	}
}

// isResolver picks the resolver pods out of all that the cache has.
func (r *Reconciler) isResolver(o client.Object) bool {
	return o.GetNamespace() == r.Namespace && r.ResolverSelector.Matches(labels.Set(o.GetLabels()))
}

// all is for resolver pods, which stand in for every service.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.find(ctx)
}

func (r *Reconciler) find(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	var list v1alpha1.ElasticServiceList
	if err := r.Client.List(ctx, &list, opts...); err != nil {
		return nil // only when the cache is gone, and so are we
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for _, es := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: es.Namespace, Name: es.Name}})
	}
	return requests
}

// resolverChanged lets through what changes who can stand in: a pod that gets
// an address, becomes ready or unready, or is going.
func resolverChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*corev1.Pod)
			after, ok2 := e.ObjectNew.(*corev1.Pod)
			return !ok1 || !ok2 || podstatus.Ready(before) != podstatus.Ready(after) || before.Status.PodIP != after.Status.PodIP ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
		},
	}
}
