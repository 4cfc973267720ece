package gameserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
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
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// maxConcurrent bounds how many Servers are reconciled at once.
const maxConcurrent = 16

// indexNode finds the Servers' Pods by their node.
const indexNode = "dormouse.node"

// CachedObjects are the objects other than Servers and Pods that the controller reads, with how
// they are cached; namespace is the operator's.
func CachedObjects(namespace string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.PodTemplate{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		&corev1.Node{}:        {Transform: slimNode},
		&policyv1.PodDisruptionBudget{}: {
			Label: labels.SelectorFromSet(labels.Set{managedByLabel: wellknown.ManagedBy}),
		},
	}
}

// slimNode keeps a node's addresses, whether it is ready, and the labels by which an Allocation may
// prefer it: images are most of a node.
func slimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: slimLabels(node.Labels)},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			c.LastHeartbeatTime = metav1.Time{}
			slim.Status.Conditions = []corev1.NodeCondition{c}
		}
	}
	return slim, nil
}

// slimLabels drops the labels that tell of a node's hardware, of which there may be hundreds.
func slimLabels(labels map[string]string) map[string]string {
	kept := maps.Clone(labels)
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, "feature.node.kubernetes.io/") })
	return kept
}

// SetupIndexes adds the indexes that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &corev1.Pod{}, indexNode, func(o client.Object) []string {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" || pod.Labels[wellknown.ServerLabel] == "" {
			return nil
		}
		return []string{pod.Spec.NodeName}
	})
	return wrapf(err, "add the index %s", indexNode)
}

// Setup registers the controller.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	again := make(chan event.TypedGenericEvent[*v1alpha1.Server])
	if err := mgr.Add(leaderRunnable(func(ctx context.Context) error { return pass(ctx, r.again, again) })); err != nil {
		return fmt.Errorf("set up the Server controller: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("server").
		WithEventFilter(firstPasses()).
		For(&v1alpha1.Server{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
		})).
		Watches(&v1alpha1.Server{}, r.creations(), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WatchesRawSource(r.backlog.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		Watches(&corev1.Pod{}, r.podChanges()).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.byNode), builder.WithPredicates(nodeChanged())).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.byGuard), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
		})).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.byElasticPort)).
		WatchesRawSource(source.Channel(again, &handler.TypedEnqueueRequestForObject[*v1alpha1.Server]{})).
		WatchesRawSource(r.allocationChanges())
	if r.Copies != nil {
		b = b.Watches(&v1alpha1.Backup{}, handler.EnqueueRequestsFromMapFunc(byCopy), builder.WithPredicates(copies.Ended())).
			Watches(&v1alpha1.Restore{}, handler.EnqueueRequestsFromMapFunc(byCopy), builder.WithPredicates(copies.Ended()))
	}
	err := b.Complete(reconcilers.Wrap(r.Reporter, "server", "Server", r))
	return wrapf(err, "set up the Server controller")
}

// byElasticPort finds the Servers with a UDP host port that is an ElasticService's.
func (r *Reconciler) byElasticPort(ctx context.Context, o client.Object) []reconcile.Request {
	svc, ok := o.(*corev1.Service)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, number := range udpports.ElasticPorts(svc) {
		servers, err := udpports.ServersWith(ctx, r.Client, number)
		if err != nil {
			return nil // only when the cache has stopped, and so has the operator
		}
		for _, key := range servers {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// byPod finds a Pod's Server, which may not exist any more.
func byPod(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetLabels()[wellknown.ServerLabel] == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

func (r *Reconciler) byNode(ctx context.Context, o client.Object) []reconcile.Request {
	var pods corev1.PodList
	// They are only read.
	if err := r.Client.List(ctx, &pods, client.MatchingFields{indexNode: o.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	requests := make([]reconcile.Request, 0, len(pods.Items))
	for i := range pods.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
	}
	return requests
}

// byGuard finds a Server whose pass will restore the namespace's PodDisruptionBudget.
func (r *Reconciler) byGuard(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetName() != guardName {
		return nil
	}
	var servers v1alpha1.ServerList
	if err := r.Client.List(ctx, &servers, client.InNamespace(o.GetNamespace()), client.Limit(1)); err != nil || len(servers.Items) == 0 {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(&servers.Items[0])}}
}

// nodeChanged lets through changes that matter to a Server: of the node's addresses, and of
// whether it answers.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*corev1.Node)
			after, ok2 := e.ObjectNew.(*corev1.Node)
			return !ok1 || !ok2 || !slices.Equal(before.Status.Addresses, after.Status.Addresses) ||
				!equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
		},
	}
}

// allocationChanges asks for passes of Servers that Allocations have or let go.
func (r *Reconciler) allocationChanges() source.Source {
	if r.Allocations != nil {
		return r.Allocations.Servers()
	}
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}
