package gameserver

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/operator/internal/allocation/book"
)

// Allocations knows which Servers Allocations have.
type Allocations interface {
	// WaitSynced waits until it knows.
	WaitSynced(ctx context.Context) error
	// HolderOf is who has a Server.
	HolderOf(server client.Object) book.Holder
	// Source asks for passes of Servers that are held, or let go.
	Source() source.Source
}

// allocationChanges asks for passes of Servers that Allocations have or let go.
func (r *Reconciler) allocationChanges() source.Source {
	if r.Allocations != nil {
		return r.Allocations.Source()
	}
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}
