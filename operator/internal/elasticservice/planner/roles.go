package planner

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/spec"
)

// planRoles decides which endpoints get new clients, and each resolver's role.
func (p *Plan) planRoles(now time.Time, es *v1alpha1.ElasticService, o Observed) {
	p.Mode = v1alpha1.ModeServe
	standIn := p.Phase != v1alpha1.PhaseAwake || spec.Handoff(es) == v1alpha1.HandoffNever
	if p.Phase == "" && endpoints.CountUp(o.Servers) > 0 {
		// The target was never found, and its Service works without Dormouse.
		standIn = false
	}
	if standIn {
		p.Mode = v1alpha1.ModeProxy
	}
	// A replaced resolver's endpoint goes with one write of a sleeping service's slices. While
	// a server is up it tells for how long the resolver may still take clients.
	lingers := p.Phase != v1alpha1.PhaseAsleep || endpoints.Lingers(o.Service, es.Status.Ports)
	var requeueAfter requeue.After
	p.Roles, requeueAfter = endpoints.StandIns(now, es.Status.Ports, o.Resolvers, o.Slices, standIn, lingers)
	p.RequeueAfter.AtMost(requeueAfter.Duration())
	if left := endpoints.FamilyLag - now.Sub(spec.PhaseSince(es)); !standIn && (es.Status.Phase != v1alpha1.PhaseAwake || left > 0) {
		p.planStay(es, o, left)
	}
}

// planStay decides which resolvers may stay ready in a family that lags.
func (p *Plan) planStay(es *v1alpha1.ElasticService, o Observed, left time.Duration) {
	if o.Service == nil || !slices.ContainsFunc(o.Service.Spec.IPFamilies, func(f corev1.IPFamily) bool { return endpoints.Lags(discoveryv1.AddressType(f), o.Sources, o.Pods()) }) {
		return
	}
	p.Stay = map[string]bool{}
	for _, r := range o.Resolvers {
		if r.Ready && r.Reachable && r.ListensOn(es.Status.Ports) {
			p.Stay[r.UID] = true
		}
	}
	p.RequeueAfter.AtMost(left)
}

// awaitFront looks again until a resolver listens for a front: after a short time at first, for
// a listener that is about to open. That a resolver becomes ready is watched.
func (p *Plan) awaitFront(now time.Time, es *v1alpha1.ElasticService, o Observed) {
	if es.Status.Front == nil || endpoints.AnyListens(es.Status.Front, o.Resolvers) || !slices.ContainsFunc(o.Resolvers, func(r endpoints.Resolver) bool { return r.Ready }) {
		return
	}
	wait := 200 * time.Millisecond
	c := meta.FindStatusCondition(es.Status.Conditions, conditions.FrontReady)
	if c != nil && c.Status == metav1.ConditionFalse && now.Sub(c.LastTransitionTime.Time) > NewResolverTime {
		wait = 5 * time.Second
	}
	p.RequeueAfter.AtMost(wait)
}

// Accepting reports whether servers get new clients past the resolvers.
func (p *Plan) Accepting(es *v1alpha1.ElasticService) bool {
	return p.Phase == v1alpha1.PhaseAwake && spec.Handoff(es) == v1alpha1.HandoffDirect
}

// NewResolverTime is how long a new resolver pod may take to stand in for all services before
// their conditions report that it doesn't. Replacing a pod is no problem, and would cause two
// writes of each service's status.
const NewResolverTime = 10 * time.Second
