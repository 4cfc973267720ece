package fleet

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
)

// Allocations knows which Servers Allocations have.
type Allocations interface {
	// WaitSynced waits until it knows.
	WaitSynced(ctx context.Context) error
	// HolderOf is who has a Server.
	HolderOf(server client.Object) book.Holder
	// Withdraw asks for a Server that is about to be drained or deleted, which no Allocation gets any
	// more; false: one has it.
	Withdraw(namespace, name string) bool
}

// observeHolders finds which Servers Allocations have. Their own status says so only later.
func (r *Reconciler) observeHolders(f *v1alpha1.Fleet, servers []server) {
	if r.Allocations == nil {
		return
	}
	for i := range servers {
		s := &servers[i]
		s.hold(r.Allocations.HolderOf(s.object(f)).Any())
	}
}

// errAllocated means that an Allocation has got a Server since it was observed.
var errAllocated = errors.New("an Allocation has it now")

// withdraw has no Allocation get a Server any more. It fails as if the Server had changed where one has
// it; not for a game that is broken or asks for its end, which goes all the same.
func (r *Reconciler) withdraw(f *v1alpha1.Fleet, s *server) error {
	if r.Allocations == nil || s.unhealthy || s.shutdown || r.Allocations.Withdraw(f.Namespace, s.name) {
		return nil
	}
	return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), s.name, errAllocated)
}
