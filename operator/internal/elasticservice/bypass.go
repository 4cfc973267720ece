package elasticservice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/target"
)

// When a selector is removed from a Service, Kubernetes leaves the EndpointSlices that it wrote
// as they are, and copies the Endpoints object that it wrote into further slices. Both lead
// clients to the pods that were there then, past the resolver.

// endpointsMirror is how Kubernetes labels the slices that it copies from Endpoints.
const endpointsMirror = "endpointslicemirroring-controller.k8s.io"

const (
	// mirrorTime is how long Kubernetes is given to copy Endpoints after a change.
	mirrorTime = 10 * time.Second
	// mirroredRetry is how often Endpoints that are in the way are looked for.
	mirroredRetry = 10 * time.Second
)

// leftoverState is the result of the last look for such slices.
type leftoverState struct {
	// version is the Service's resourceVersion, and since when it has been that.
	version string
	since   time.Time
	next    time.Time
	last    planner.Leftovers
}

// observeLeftovers looks for such slices after each change of the Service, which has no selector. The
// cache has only Dormouse's own slices.
func (r *Reconciler) observeLeftovers(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, m *leftoverState, o *planner.Observed) error {
	if m.version != o.Service.ResourceVersion {
		*m = leftoverState{version: o.Service.ResourceVersion, since: now, next: now}
	}
	o.Leftovers = m.last
	if m.next.IsZero() || now.Before(m.next) {
		return nil
	}
	var list discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: es.Spec.Service}); err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s/%s: %w", es.Namespace, es.Spec.Service, err)
	}
	m.last = planner.Leftovers{}
	for _, s := range list.Items {
		switch s.Labels[discoveryv1.LabelManagedBy] {
		case wellknown.EndpointSliceController:
			m.last.Slices = append(m.last.Slices, s)
		case endpointsMirror:
			m.last.Mirrored = true
		}
	}
	switch {
	case m.last.Mirrored:
		m.next = now.Add(mirroredRetry)
	case now.Before(m.since.Add(mirrorTime)):
		m.next = m.since.Add(mirrorTime)
	default:
		m.next = time.Time{}
	}
	m.last.Next = m.next
	o.Leftovers = m.last
	return nil
}

// A Service's selector may match pods that aren't the target's. They are found without asking
// for pods: those that go on serving while the target is at zero are not its own.

// strangerAfter is how long after the target went to zero its own pods may still seem to stay.
const strangerAfter = 30 * time.Second

// observeStrangers finds pods that aren't the target's, though the Service's selector, or the
// target's, matches them. They are remembered while the target has pods of its own. Before any
// are counted, left asks the API server how many the target still has: some kinds end their
// pods one after the other. A target of Servers has none: its draining Servers outlast its sleep.
func (m *state) observeStrangers(now time.Time, es *v1alpha1.ElasticService, ref target.Ref, o *planner.Observed, left func() (int32, error)) {
	if m.target.Name != "" && m.target != ref {
		m.strangers = nil
	}
	if ref.HasServers() {
		return
	}
	serving := map[string]string{}
	for i := range o.Sources {
		for _, e := range o.Sources[i].Endpoints {
			if e.TargetRef != nil && ptr.Deref(e.Conditions.Serving, true) && !ptr.Deref(e.Conditions.Terminating, false) {
				serving[string(e.TargetRef.UID)] = e.TargetRef.Name
			}
		}
	}
	asleep := o.Scale.Err == nil && o.Scale.Replicas == 0 && es.Status.Phase == v1alpha1.PhaseAsleep
	maps.DeleteFunc(m.strangers, func(uid, _ string) bool { return serving[uid] == "" })
	if asleep && len(serving) > len(m.strangers) {
		if wait := spec.Of(es).PhaseSince.Add(strangerAfter).Sub(now); wait > 0 {
			o.StrangersNext = wait
		} else if n, err := left(); n > 0 || err != nil {
			o.StrangersNext = strangerAfter
		} else {
			m.strangers = serving
		}
	}
	o.Strangers = slices.Sorted(maps.Values(m.strangers))
}
