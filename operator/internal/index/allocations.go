package index

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// AllocationServer finds the Allocations that have a Server, by its UID.
const AllocationServer = "status.serverUID"

// AllocationServerKeys are an Allocation's keys in that index.
func AllocationServerKeys(o client.Object) []string {
	a, ok := o.(*v1alpha1.Allocation)
	if !ok || a.Status.State != v1alpha1.AllocationAllocated {
		return nil
	}
	return []string{a.Status.ServerUID}
}

// AllocationsOf finds the Allocations that have a Server. They are the cache's own and must not be
// changed.
func AllocationsOf(ctx context.Context, cached client.Reader, server *v1alpha1.Server) ([]v1alpha1.Allocation, error) {
	var list v1alpha1.AllocationList
	err := cached.List(ctx, &list, client.InNamespace(server.Namespace), client.MatchingFields{AllocationServer: string(server.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Allocations of Server %s: %w", client.ObjectKeyFromObject(server), err)
	}
	return list.Items, nil
}
