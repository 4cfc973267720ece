package gameserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A new leader looks at each Server once. Most are well, and their first passes change nothing, while
// players wait for services that the same processors wake.

// maxBacklog is how many workers are busy at most with first passes that nobody waits for.
const maxBacklog = 2

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// firstPasses has them asked for once, of each Server and each Pod that has none: what else is there at
// the start asks for none.
func firstPasses() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
		switch e.Object.(type) {
		case *v1alpha1.Server, *corev1.Pod:
			return true
		}
		return !e.IsInInitialList
	}}
}

// creations asks for the first passes. It alone does: a Server that is made while the controller's handlers
// are added is there at the start for some of them, and new for others.
func (r *Reconciler) creations() handler.EventHandler {
	return handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
		s, ok := e.Object.(*v1alpha1.Server)
		if request := (reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}); !ok || !e.IsInInitialList || !rests(s) {
			q.Add(request)
		} else {
			r.backlog.Add(request)
		}
	}}
}

// rests reports whether nobody waits for a Server's pass: it takes players or is stopped, as its spec
// wants it, and it is to stay.
func rests(s *v1alpha1.Server) bool {
	return (s.Status.State.TakesPlayers() || s.Status.State == v1alpha1.ServerStopped) &&
		s.Status.ObservedGeneration == s.Generation && !s.Spec.Drain && s.DeletionTimestamp.IsZero()
}

// podChanges asks for passes after changes of Servers' Pods. Of those that are there at the start only
// those whose Server is gone need one: the others' Servers have their first pass.
func (r *Reconciler) podChanges() handler.EventHandler {
	each := handler.EnqueueRequestsFromMapFunc(byPod)
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList || !r.hasServer(ctx, e.Object) {
				each.Create(ctx, e, q)
			}
		},
		UpdateFunc: each.Update,
		DeleteFunc: each.Delete,
	}
}

// hasServer reports whether the Server that a Pod is of is there.
func (r *Reconciler) hasServer(ctx context.Context, pod client.Object) bool {
	// It is only looked for.
	return r.Client.Get(ctx, client.ObjectKeyFromObject(pod), &v1alpha1.Server{}, client.UnsafeDisableDeepCopy) == nil
}

// Backlog is how many first passes nobody waits for and haven't ended.
func (r *Reconciler) Backlog() int { return r.backlog.Len() }
