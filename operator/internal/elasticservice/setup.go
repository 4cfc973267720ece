package elasticservice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// watchedTargets are the kinds of target that are watched, as metadata only. Servers are watched
// anyway, whole. Targets of other kinds work, too: a change of their scale shows in their pods.
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
	b := ctrl.NewControllerManagedBy(mgr).
		Named("elasticservice").
		// The first passes are asked for once, of each ElasticService, and not for each object
		// that belongs to it.
		WithEventFilter(predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
			_, first := e.Object.(*v1alpha1.ElasticService)
			return first || !e.IsInInitialList
		}}).
		For(&v1alpha1.ElasticService{}, builder.WithPredicates(afterStart(), predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ElasticService{}, r.atStart(), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return e.IsInInitialList },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WatchesRawSource(r.backlog.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent}).
		// Wakes are stamped into the status, and neither those nor finalizers change the
		// generation.
		Watches(&v1alpha1.ElasticService{}, kit.Debounce{Wait: debounce, Find: kit.Itself}.Handler(), builder.WithPredicates(afterStart())).
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
		Watches(&discoveryv1.EndpointSlice{}, kit.Debounce{Wait: debounce, Find: r.byService, Urgent: noneLeft}.Handler()).
		Watches(&corev1.Pod{}, changes.handler(r.onlyOne), builder.WithPredicates(predicate.NewPredicateFuncs(r.Resolvers.Is), resolvers.Changed())).
		Watches(&v1alpha1.Server{}, kit.Debounce{Wait: debounce, Find: r.byServer}.Handler(), builder.WithPredicates(serverChanged())).
		Watches(&v1alpha1.Server{}, kit.Debounce{Wait: debounce, Find: r.byTarget("Server")}.Handler(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(r.byHostPort), builder.WithPredicates(hostPortsChanged())).
		Watches(&v1alpha1.GameAutoscaler{}, kit.Debounce{Wait: debounce, Find: r.byAutoscaler, Before: true}.Handler(), builder.WithPredicates(keptAwakeChanged())).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, kit.Debounce{Wait: debounce, Find: r.byHPA}.Handler(), builder.WithPredicates(boundsChanged())).
		WatchesRawSource(r.Autoscalers.Source(r.byScaledObject)).
		WatchesRawSource(source.Channel(changed, &handler.TypedEnqueueRequestForObject[*v1alpha1.ElasticService]{}))
	for _, meta := range WatchedTargets() {
		b = b.WatchesMetadata(meta, kit.Debounce{Wait: debounce, Find: r.byTarget(meta.Kind)}.Handler(),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if err := b.Complete(reconcilers.Wrap(r.Reporter, "elasticservice", "ElasticService", r)); err != nil {
		return fmt.Errorf("set up the ElasticService controller: %w", err)
	}
	return nil
}

// afterStart lets through what isn't there when the controller starts.
func afterStart() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}
}

// byService finds the ElasticServices of a Service, or of a slice's Service: the user's own
// Service, the private one beside it, or a stranger with the private one's name.
func (r *Reconciler) byService(ctx context.Context, o client.Object) []reconcile.Request {
	if public := o.GetLabels()[wellknown.PrivateServiceLabel]; public != "" {
		return index.Find(ctx, r.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.Service: public})
	}
	return append(index.Find(ctx, r.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.Service: o.GetName()}),
		index.Find(ctx, r.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.PrivateService: o.GetName()})...)
}

// bySibling finds the other ElasticServices of the same Service or target: one of them takes
// over when this one is gone.
func (r *Reconciler) bySibling(ctx context.Context, o client.Object) []reconcile.Request {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	ref := es.Spec.ScaleTargetRef
	return append(index.Find(ctx, r.Client, client.InNamespace(es.Namespace), client.MatchingFields{index.Service: es.Spec.Service}),
		index.Find(ctx, r.Client, client.InNamespace(es.Namespace), client.MatchingFields{index.Target: ref.Kind + "/" + ref.Name})...)
}

func (r *Reconciler) byTarget(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return index.Find(ctx, r.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.Target: kind + "/" + o.GetName()})
	}
}

// byAutoscaler finds the ElasticServices of a GameAutoscaler's target.
func (r *Reconciler) byAutoscaler(ctx context.Context, o client.Object) []reconcile.Request {
	gas, ok := o.(*v1alpha1.GameAutoscaler)
	if !ok {
		return nil
	}
	return index.Find(ctx, r.Client, client.InNamespace(gas.Namespace), client.MatchingFields{index.Target: index.AutoscalerTargetOf(gas)})
}

// keptAwakeChanged lets through GameAutoscalers that begin or cease to keep their target awake.
func keptAwakeChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.GameAutoscaler)
			after, ok2 := e.ObjectNew.(*v1alpha1.GameAutoscaler)
			return ok1 && ok2 && (!before.Status.KeepAwakeUntil.Equal(after.Status.KeepAwakeUntil) || before.Spec.TargetRef != after.Spec.TargetRef)
		},
	}
}

// byNodePort finds the ElasticServices with a UDP port that is a Service's node port.
func (r *Reconciler) byNodePort(ctx context.Context, o client.Object) []reconcile.Request {
	svc, ok := o.(*corev1.Service)
	if !ok {
		return nil
	}
	return r.byUDPPorts(ctx, udpports.NodePorts(svc), svc)
}

// byHostPort finds the ElasticServices with a UDP port that is a Server's host port.
func (r *Reconciler) byHostPort(ctx context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*v1alpha1.Server)
	if !ok {
		return nil
	}
	return r.byUDPPorts(ctx, udpports.HostPorts(s), s)
}

// byUDPPorts finds the ElasticServices with one of the numbers to which it matters who has that
// number: those without a clash so far, and those whose condition names this object. Thousands
// may have the number of a game's usual port.
func (r *Reconciler) byUDPPorts(ctx context.Context, numbers []int32, of client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, number := range numbers {
		services, err := udpports.ServicesWith(ctx, r.Client, number)
		if err != nil {
			return nil // only when the cache has stopped, and so has the operator
		}
		for i := range services {
			var list v1alpha1.ElasticServiceList
			// It is only read.
			err := r.Client.List(ctx, &list, client.InNamespace(services[i].Namespace), client.MatchingFields{index.Service: services[i].Name}, client.UnsafeDisableDeepCopy)
			if err != nil {
				return nil
			}
			for j := range list.Items {
				if es := &list.Items[j]; concerns(es, client.ObjectKeyFromObject(of)) {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)})
				}
			}
		}
	}
	return requests
}

// concerns reports whether it may matter to an ElasticService that an object got or lost a port
// number.
func concerns(es *v1alpha1.ElasticService, key client.ObjectKey) bool {
	c := meta.FindStatusCondition(es.Status.Conditions, conditions.UDPSessionsKept)
	return c == nil || c.Status != metav1.ConditionFalse || strings.Contains(c.Message, key.String())
}

// hostPortsChanged lets through Servers that get UDP host ports, or lose them.
func hostPortsChanged() predicate.Predicate {
	has := func(o client.Object) bool {
		s, ok := o.(*v1alpha1.Server)
		return ok && len(udpports.HostPorts(s)) > 0
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Server)
			after, ok2 := e.ObjectNew.(*v1alpha1.Server)
			return ok1 && ok2 && !slices.Equal(udpports.HostPorts(before), udpports.HostPorts(after))
		},
	}
}

// byServer finds the ElasticServices whose target has a Server.
func (r *Reconciler) byServer(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, owner := range report.Owners(o) {
		requests = append(requests, index.Find(ctx, r.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.Target: owner})...)
	}
	return requests
}

// serverChanged lets through what makes a Server busy or not, or drain.
func serverChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Server)
			after, ok2 := e.ObjectNew.(*v1alpha1.Server)
			return ok1 && ok2 && (idleness.Busy(before) != idleness.Busy(after) || drains(before) != drains(after))
		},
	}
}

// byPlayerList finds the ElasticServices whose players a ConfigMap lists.
func (r *Reconciler) byPlayerList(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Find(ctx, r.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.Players: o.GetName()})
}

// byFront finds the ElasticServices that share a Service.
func (r *Reconciler) byFront(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Find(ctx, r.Client, client.MatchingFields{index.Front: client.ObjectKeyFromObject(o).String()})
}

// byHost finds the ElasticServices that want one of this one's hosts at the same front.
func (r *Reconciler) byHost(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for i, key := range index.FrontKeys(o) {
		if i > 0 { // the first key is for all hosts
			requests = append(requests, index.Find(ctx, r.Client, client.MatchingFields{index.Front: key})...)
		}
	}
	return requests
}

// hostsMoved lets through what may give a host to another ElasticService. Those that are there
// when the operator starts all have a pass of their own.
func hostsMoved() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
			after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
			return ok1 && ok2 && before.Generation != after.Generation && !front.Same(before.Spec.Front, after.Spec.Front)
		},
	}
}

// noneLeft reports whether a slice has no server left that takes clients: then the resolver
// must stand in at once. A slice that has just been made has none yet.
func noneLeft(o client.Object) bool {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return false
	}
	servers := endpoints.ServersOf([]discoveryv1.EndpointSlice{*slice}, endpoints.Pods{})
	drains := len(servers) == 0
	for _, s := range servers {
		drains = drains || s.Terminating
	}
	return drains && endpoints.CountUp(servers) == 0
}
