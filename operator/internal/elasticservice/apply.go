package elasticservice

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/target"
)

// apply applies the plan. It reports whether that ends the pass, because the deletion or the
// sleep was finished, or there is an obstacle.
func (r *Reconciler) apply(ctx context.Context, p *pass) (result reconcile.Result, ended bool, err error) {
	switch {
	case p.plan.Raise && p.es.DeletionTimestamp.IsZero():
		r.raise(ctx, p)
	case p.plan.Raise:
		raising, cancel := context.WithTimeout(ctx, raiseTime)
		defer cancel()
		if _, err := r.Scaler.RaiseTo(raising, target.Of(p.es), p.observed.Autoscaler.Bound(target.Wanted(p.es))); err != nil && !p.plan.Release {
			return result, true, fmt.Errorf("wake the target of the deleted ElasticService: %w", err)
		}
	}
	if p.plan.Release {
		return result, true, r.release(ctx, p.es, p.observed)
	}
	if o := p.observed; o.Service != nil {
		p.state.pendingSlices.Seen(o.Slices)
		err := endpoints.Sync(ctx, r.Client, &p.state.pendingSlices, o.Slices, endpoints.Slices(p.es, endpoints.Wanted{
			Service: o.Service, Resolvers: o.Resolvers, Roles: p.plan.Roles, Stay: p.plan.Stay,
			Sources: o.Sources, Pods: o.Pods(), Slices: o.Slices, Leftovers: o.Leftovers.Slices,
			Accepting: p.plan.Accepting(p.es),
		}))
		if refusal.Is(err) && p.es.DeletionTimestamp.IsZero() {
			result, err = r.stop(ctx, p, obstacle.New(reasons.Refused,
				"The API server refuses the EndpointSlices of Service %s (%s), so that they stay as they are: change what refuses them.",
				o.Service.Name, refusal.Words(err)))
			return result, true, err
		}
		if err != nil {
			return result, true, err
		}
		p.found.Note(r.removeLeftovers(ctx, p.es, o))
	}
	p.applied = r.Now()
	if p.plan.Commit {
		result, err = r.commitSleep(ctx, p)
		return result, true, err
	}
	return result, false, nil
}

// removeLeftovers deletes the slices that nobody writes any more. Servers with clients are in
// Dormouse's own slices by now. The flaw, if there is one, explains why they stay.
func (r *Reconciler) removeLeftovers(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed) *obstacle.Obstacle {
	m := &r.stateOf(es).leftovers
	var names []string
	for i := range o.Leftovers.Slices {
		s := &o.Leftovers.Slices[i]
		if err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}); client.IgnoreNotFound(err) != nil {
			// Perhaps somebody writes it after all: look again.
			m.next = m.since
			return obstacle.New(reasons.Refused,
				"Service %s has no selector any more, and EndpointSlice %s, by which clients go past the resolver, can't be deleted (%s): delete it yourself.",
				es.Spec.Service, s.Name, refusal.Words(err))
		}
		names = append(names, s.Name)
	}
	m.last.Slices = nil
	if len(names) > 0 {
		kit.Emit(r.Events, es, kit.Normal("LeftoversDeleted", "Proxy",
			"Service %s has no selector any more, and Kubernetes had left EndpointSlices of it that nobody writes: deleted %s.",
			es.Spec.Service, strings.Join(names, ", ")))
	}
	return nil
}
