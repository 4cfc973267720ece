package elasticservice

import (
	"context"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// breath is how long a pass waits that nobody waits for. A wake makes a burst of
// changes (the stamp, the scale, the pod's address, its readiness) and one pass
// after them does for all; meanwhile the API server is busy with what a player
// does wait for, the pod.
const breath = 50 * time.Millisecond

// soon enqueues what find finds after a breath, and at once when a change is
// urgent. A nil urgent is never.
func soon(find handler.MapFunc, urgent func(client.Object) bool) handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		now := urgent != nil && urgent(o)
		for _, r := range find(ctx, o) {
			if now {
				q.Add(r)
			} else {
				q.AddAfter(r, breath)
			}
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}

// noneLeft says that a slice has no server that takes clients any more: then
// somebody must stand in at once. One that has just been made has none yet.
func noneLeft(o client.Object) bool {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return false
	}
	servers := serversOf([]discoveryv1.EndpointSlice{*slice}, &observed{})
	leaving := len(servers) == 0
	for _, s := range servers {
		leaving = leaving || s.terminating
	}
	return leaving && countUp(servers) == 0
}

// itself finds the object.
func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}
