package elasticservice

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/target"
)

// Allocations knows which targets' Servers Allocations have, or wait for.
type Allocations interface {
	// WaitSynced waits until it knows.
	WaitSynced(ctx context.Context) error
	// HolderOf is who has a Server.
	HolderOf(server client.Object) book.Holder
	// UseOf is how a target is used.
	UseOf(namespace, kind, name string) book.Use
	// Close asks for a target that is about to be put to sleep, with its ElasticService's
	// resourceVersion: no Allocation gets one of its Servers any more; false: it is used.
	Close(namespace, kind, name, resourceVersion string) bool
}

// allocated is how Allocations use a service's target.
func (r *Reconciler) allocated(es *v1alpha1.ElasticService) book.Use {
	if r.Allocations == nil || !target.Of(es).HasServers() {
		return book.Use{}
	}
	return r.Allocations.UseOf(es.Namespace, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
}

// closeAllocations has no Allocation get one of the target's Servers any more, because that is put to
// sleep, and reports whether none has one.
func (r *Reconciler) closeAllocations(live *v1alpha1.ElasticService) bool {
	return r.Allocations == nil || !target.Of(live).HasServers() ||
		r.Allocations.Close(live.Namespace, live.Spec.ScaleTargetRef.Kind, live.Spec.ScaleTargetRef.Name, live.ResourceVersion)
}

// busy reports whether an Allocation has a Server.
func (r *Reconciler) busy(s *v1alpha1.Server) bool {
	return r.Allocations != nil && r.Allocations.HolderOf(s).Any()
}
