package elasticservice

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/patch"
)

// applySlices makes the Service's slices of ours what they should be.
func (r *Reconciler) applySlices(ctx context.Context, es *v1alpha1.ElasticService, o observed, p plan) error {
	have := map[string]*discoveryv1.EndpointSlice{}
	for i := range o.slices {
		have[o.slices[i].Name] = &o.slices[i]
	}
	for _, want := range desiredSlices(es, o, p) {
		old := have[want.Name]
		delete(have, want.Name)
		if old != nil && sameSlice(old, want) {
			continue
		}
		if err := patch.Apply(ctx, r.Client, fieldOwner, want); err != nil {
			return err
		}
	}
	for _, old := range have {
		if err := r.Client.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", client.ObjectKeyFromObject(old), err)
		}
	}
	return nil
}
