package setup

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/operator/internal/allocation"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// setupAllocations adds what gives Allocations their Servers.
func setupAllocations(ctx context.Context, mgr ctrl.Manager, waker allocation.Waker, namespaces []string) (*allocation.Allocator, error) {
	a, err := allocation.New(ctx, allocation.Options{
		Cache:  mgr.GetCache(),
		Client: mgr.GetClient(),
		Live:   mgr.GetAPIReader(), Namespaces: namespaces,
		Waker:   waker,
		Events:  mgr.GetEventRecorder("dormouse-operator"),
		Metrics: metrics.NewAllocations(ctrlmetrics.Registry),
		Log:     mgr.GetLogger().WithName("allocation"),
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(a); err != nil {
		return nil, fmt.Errorf("add the allocator: %w", err)
	}
	return a, nil
}
