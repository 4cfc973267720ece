package kit

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// ChildrenDebounce is how long a pass waits for further changes of an object's children,
	// which come in bursts.
	ChildrenDebounce = 50 * time.Millisecond
	// OwnDebounce is how long a pass waits after an object's own change. Meanwhile a wake
	// itself makes the changes to children that the pass would make.
	OwnDebounce = 20 * time.Millisecond
)

// OwnChanges asks for a pass after an object's own changes.
func OwnChanges() handler.EventHandler {
	return Debounce{Wait: OwnDebounce, Find: Itself, Before: true}.Handler()
}

// ChildrenChanges asks for passes of the objects that find returns for changed children.
func ChildrenChanges(find handler.MapFunc) handler.EventHandler {
	return Debounce{Wait: ChildrenDebounce, Find: find, Before: true}.Handler()
}

// Debounce asks for a pass a little after a change. Objects change in bursts, and one pass
// covers a burst. Meanwhile the API server is busy with what a player waits for.
type Debounce struct {
	// Wait is how long a pass waits for further changes.
	Wait time.Duration
	// Find finds the objects that a change is relevant to.
	Find handler.MapFunc
	// Urgent reports whether a change must not wait; nil: each waits.
	Urgent func(client.Object) bool
	// Before is set where an update is also relevant to the objects that Find finds for the
	// object before the update.
	Before bool
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Handler is the event handler for a controller's watch.
func (d Debounce) Handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { d.enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if d.Before {
				d.enqueue(ctx, e.ObjectOld, q)
			}
			d.enqueue(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { d.enqueue(ctx, e.Object, q) },
	}
}

func (d Debounce) enqueue(ctx context.Context, o client.Object, q queue) {
	urgent := d.Urgent != nil && d.Urgent(o)
	for _, request := range d.Find(ctx, o) {
		if urgent {
			q.Add(request)
		} else {
			q.AddAfter(request, d.Wait)
		}
	}
}
