package elasticservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
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
		err := endpoints.Sync(ctx, r.Client, &p.state.pendingSlices, r.echoesOf(p), o.Slices, endpoints.Slices(p.es, endpoints.Wanted{
			Service: o.Service, Resolvers: o.Resolvers, Roles: p.plan.Roles, Stay: p.plan.Stay,
			Sources: o.Sources, Pods: o.Pods, Slices: o.Slices, Leftovers: o.Leftovers.Slices,
			Accepting: p.plan.Accepting,
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
		if len(o.Leftovers.Slices) > 0 {
			p.found.Flaw = cmp.Or(p.found.Flaw, r.removeLeftovers(ctx, p))
		}
	}
	p.applied = r.Now()
	if p.plan.Commit {
		result, err = r.commitSleep(ctx, p)
		return result, true, err
	}
	return result, false, nil
}

// echoesOf is where slices are noted of which the next pass needs no news; nil: it needs them. A service at rest
// whose resolvers all take clients, or end and have no endpoint any more, has no next step.
func (r *Reconciler) echoesOf(p *pass) *endpoints.Echoes {
	if len(p.observed.Resolvers) == 0 || r.turnsOf(p.es, &p.observed) == nil {
		return nil
	}
	for i := range p.observed.Resolvers {
		resolver := &p.observed.Resolvers[i]
		role := p.plan.Roles[resolver.UID]
		if role != endpoints.RoleReady && (role != endpoints.RoleNone || !resolver.Ends) {
			return nil
		}
	}
	return &r.echoes
}

// removeLeftovers deletes the slices that nobody writes any more. Servers with clients are in
// Dormouse's own slices by now. The flaw, if there is one, explains why they stay.
func (r *Reconciler) removeLeftovers(ctx context.Context, p *pass) *obstacle.Obstacle {
	es, m, left := p.es, made(&p.state.leftovers), p.observed.Leftovers.Slices
	var names []string
	for i := range left {
		s := &left[i]
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

// release finishes a deletion: everything that Dormouse made is deleted, except for the
// endpoints of servers that nobody else would write.
func (r *Reconciler) release(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed) error {
	var errs []error
	left := false
	for i := range o.Slices {
		s := &o.Slices[i]
		if endpoints.OfServers(s) && o.Service != nil && !o.NamespaceEnding {
			left = true
			errs = append(errs, r.orphan(ctx, s, o.Service))
			continue
		}
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, s)))
	}
	if o.Private != nil && metav1.IsControlledBy(o.Private, es) {
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, o.Private)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what was made for ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	if !o.NamespaceEnding && !patienceOver(r.Now(), es) {
		if failed := r.Autoscalers.Release(ctx, es); failed != nil {
			return fmt.Errorf("release what was paused for ElasticService %s: %w", client.ObjectKeyFromObject(es), failed)
		}
	}
	for _, p := range es.Status.Ports {
		r.Ports.Free(r.Now(), p.ResolverPort, es.UID)
	}
	r.Triggers.Forget(client.ObjectKeyFromObject(es))
	r.states.Forget(client.ObjectKeyFromObject(es))
	if err := kit.RemoveFinalizer(ctx, r.Client, es, wellknown.ElasticServiceFinalizer); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer of ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	if left {
		r.Events.Eventf(o.Service, nil, corev1.EventTypeWarning, "EndpointsLeft", "Release",
			"ElasticService %s is deleted, and the Service has no selector: it keeps the endpoints of this moment, and nobody writes them when pods come and go. "+
				"Give the Service a selector and then delete the EndpointSlices with the labels %s=%s,%s=%s, or create an ElasticService of it again.",
			es.Name, discoveryv1.LabelServiceName, o.Service.Name, discoveryv1.LabelManagedBy, wellknown.ManagedBy)
	}
	return nil
}

// released reports whether a deleted object, which the cache may still have, was released
// already: nothing may be made for it again.
func (r *Reconciler) released(ctx context.Context, es *v1alpha1.ElasticService) (bool, error) {
	live := &v1alpha1.ElasticService{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(es), live); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("read deleted ElasticService %s again: %w", client.ObjectKeyFromObject(es), err)
	}
	return live.UID != es.UID || !controllerutil.ContainsFinalizer(live, wellknown.ElasticServiceFinalizer), nil
}

// orphan lets a slice outlive its ElasticService, for as long as the Service
// lives. A later ElasticService of the Service takes it over.
func (r *Reconciler) orphan(ctx context.Context, s *discoveryv1.EndpointSlice, svc *corev1.Service) error {
	changed := s.DeepCopy()
	changed.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}}
	return r.Client.Patch(ctx, changed, client.MergeFrom(s))
}

func (r *Reconciler) namespaceEnding(ctx context.Context, name string) (bool, error) {
	ns := &corev1.Namespace{}
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, ns); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return !ns.DeletionTimestamp.IsZero(), nil
}

// patienceOver reports whether a deletion waits no longer.
func patienceOver(now time.Time, es *v1alpha1.ElasticService) bool {
	return !es.DeletionTimestamp.IsZero() && now.Sub(es.DeletionTimestamp.Time) >= planner.DeletionPatience
}
