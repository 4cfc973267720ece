package elasticservice

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/refusal"
)

// When a selector is removed from a Service, Kubernetes leaves the EndpointSlices that it
// wrote by it as they are, and copies the Endpoints object that it wrote into more of
// them. Both lead clients to the pods that were there then, past the resolver.

// endpointsMirror is how Kubernetes labels the slices that it copies from Endpoints.
const endpointsMirror = "endpointslicemirroring-controller.k8s.io"

const (
	// mirrorTime is how long Kubernetes is given to copy Endpoints after a change.
	mirrorTime = 10 * time.Second
	// mirroredRetry is how often Endpoints that are in the way are looked for.
	mirroredRetry = 10 * time.Second
)

// leftovers are the slices of a Service without a selector that lead past the resolver.
type leftovers struct {
	// slices are those that nobody writes any more.
	slices []discoveryv1.EndpointSlice
	// mirrored says that there are others, which are copied from Endpoints.
	mirrored bool
	// again is when to look again; zero when there is no need.
	again time.Time
}

// leftoverMemory is what the last look for them found.
type leftoverMemory struct {
	// version is the Service's, and since when it is.
	version string
	since   time.Time
	next    time.Time
	last    leftovers
}

// observeLeftovers looks for them after each change of a Service without a selector. The
// cache has no slices but Dormouse's own.
func (r *Reconciler) observeLeftovers(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o *observed) error {
	m := &r.memoryOf(es).leftovers
	if o.service == nil || len(o.service.Spec.Selector) > 0 {
		*m = leftoverMemory{}
		return nil
	}
	if m.version != o.service.ResourceVersion {
		*m = leftoverMemory{version: o.service.ResourceVersion, since: now, next: now}
	}
	o.leftovers = m.last
	if m.next.IsZero() || now.Before(m.next) {
		return nil
	}
	var list discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: es.Spec.Service}); err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", es.Namespace, es.Spec.Service, err)
	}
	m.last = leftovers{}
	for _, s := range list.Items {
		switch s.Labels[discoveryv1.LabelManagedBy] {
		case endpointSliceController:
			m.last.slices = append(m.last.slices, s)
		case endpointsMirror:
			m.last.mirrored = true
		}
	}
	switch {
	case m.last.mirrored:
		m.next = now.Add(mirroredRetry)
	case now.Before(m.since.Add(mirrorTime)):
		m.next = m.since.Add(mirrorTime)
	default:
		m.next = time.Time{}
	}
	m.last.again = m.next
	o.leftovers = m.last
	return nil
}

// removeLeftovers deletes the slices that nobody writes any more. Those servers that have
// clients are in Dormouse's own by now. The flaw, if there is one, says why they stay.
func (r *Reconciler) removeLeftovers(ctx context.Context, es *v1alpha1.ElasticService, o observed) *obstacle {
	m := &r.memoryOf(es).leftovers
	var names []string
	for i := range o.leftovers.slices {
		s := &o.leftovers.slices[i]
		if err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}); client.IgnoreNotFound(err) != nil {
			// Somebody writes it after all, perhaps: it is looked for again.
			m.next = m.since
			return &obstacle{v1alpha1.ReasonRefused, fmt.Sprintf(
				"Service %s has no selector any more, and EndpointSlice %s, by which clients go past the resolver, can't be deleted (%s): delete it yourself.",
				es.Spec.Service, s.Name, refusal.Words(err))}
		}
		names = append(names, s.Name)
	}
	m.last.slices = nil
	if len(names) > 0 {
		emit(r.Events, es, []notice{{corev1.EventTypeNormal, "LeftoversDeleted", "Proxy", fmt.Sprintf(
			"Service %s has no selector any more, and Kubernetes had left EndpointSlices of it that nobody writes: deleted %s.",
			es.Spec.Service, strings.Join(names, ", "))}})
	}
	return nil
}

// bypassedByEndpoints is for an Endpoints object that leads clients past the resolver.
func bypassedByEndpoints(es *v1alpha1.ElasticService, o observed) *obstacle {
	if !o.leftovers.mirrored {
		return nil
	}
	return &obstacle{v1alpha1.ReasonEndpointsBypassResolver, fmt.Sprintf(
		"There is an Endpoints object %s, which Kubernetes leaves behind when a Service loses its selector, and by which clients go past the resolver and to pods that are gone: kubectl delete endpoints %s -n %s.",
		es.Spec.Service, es.Spec.Service, es.Namespace)}
}
