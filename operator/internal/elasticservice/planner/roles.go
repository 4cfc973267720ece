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
)

// decideRoles decides which endpoints get new clients, and each resolver's role, and returns after
// how long one may have another; 0: none will.
func (d *decision) decideRoles() (requeueAfter time.Duration) {
	es, o := d.es, d.o
	standIn := d.Phase != v1alpha1.PhaseAwake || d.is.Handoff == v1alpha1.HandoffNever
	if d.Phase == "" && o.Up > 0 {
		// The target was never found, and its Service works without Dormouse.
		standIn = false
	}
	d.Accepting = d.Phase == v1alpha1.PhaseAwake && d.is.Handoff == v1alpha1.HandoffDirect
	d.Mode = v1alpha1.ModeServe
	if standIn {
		d.Mode = v1alpha1.ModeProxy
	}
	// A replaced resolver's endpoint goes with one write of a sleeping service's slices. While
	// a server is up it tells for how long the resolver may still take clients.
	lingers := d.Phase != v1alpha1.PhaseAsleep || endpoints.Lingers(o.Service, es.Status.Ports)
	d.Roles, requeueAfter = endpoints.StandIns(d.now, es.Status.Ports, o.Resolvers, standIn, lingers)
	// A family can only lag where another has a server that is up, or none has.
	if left := endpoints.FamilyLag - d.now.Sub(d.is.PhaseSince); !standIn && (es.Status.Phase != v1alpha1.PhaseAwake || left > 0) && (len(o.Sources) > 1 || o.Up == 0) {
		d.decideStay(left)
	}
	return requeueAfter
}

// decideStay decides which resolvers may stay ready in a family that lags.
func (d *decision) decideStay(left time.Duration) {
	o := d.o
	if o.Service == nil || !slices.ContainsFunc(o.Service.Spec.IPFamilies, func(f corev1.IPFamily) bool { return endpoints.Lags(discoveryv1.AddressType(f), o.Sources, o.Pods) }) {
		return
	}
	d.Stay = map[string]bool{}
	for _, r := range o.Resolvers {
		if r.Ready && r.Reachable && r.ListensOn(d.es.Status.Ports) {
			d.Stay[r.UID] = true
		}
	}
	d.RequeueAfter.AtMost(left)
}

// awaitFront looks again until a resolver listens for a front: after a short time at first, for
// a listener that is about to open. That a resolver becomes ready is watched.
func (d *decision) awaitFront() {
	if endpoints.AnyListens(d.es.Status.Front, d.o.Resolvers) || !slices.ContainsFunc(d.o.Resolvers, func(r endpoints.Resolver) bool { return r.Ready }) {
		return
	}
	wait := 200 * time.Millisecond
	c := meta.FindStatusCondition(d.es.Status.Conditions, conditions.FrontReady)
	if c != nil && c.Status == metav1.ConditionFalse && d.now.Sub(c.LastTransitionTime.Time) > NewResolverTime {
		wait = 5 * time.Second
	}
	d.RequeueAfter.AtMost(wait)
}

// NewResolverTime is how long a new resolver pod may take to stand in for all services before
// their conditions report that it doesn't. Replacing a pod is no problem, and would cause two
// writes of each service's status.
const NewResolverTime = 10 * time.Second
