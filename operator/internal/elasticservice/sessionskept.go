package elasticservice

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// udpSessionsKept reports whether a port number of the Service lets nodes end its
// players' sessions: see package udpports.
func udpSessionsKept(o observed) metav1.Condition {
	const kind = v1alpha1.ConditionUDPSessionsKept
	clash := o.clash
	switch {
	case o.service == nil:
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The Service is not known.")
	case !hasUDP(o.service):
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The Service has no UDP port.")
	case clash == nil:
		return condition.True(kind, v1alpha1.ReasonOK, "No Server and no other Service has the number of a UDP port of this Service.")
	case clash.HostPortOf.Name != "":
		return condition.False(kind, v1alpha1.ReasonHostPortClash,
			"UDP port %d of Service %s is also a host port of Server %s, and each time a Pod with it starts, its node ends the sessions of UDP players who came in there: give one of the two another number.",
			clash.Number, o.service.Name, clash.HostPortOf)
	default:
		return condition.False(kind, v1alpha1.ReasonNodePortClash,
			"UDP port %d of Service %s is also a node port of Service %s, and kube-proxy ends the sessions of UDP players whenever endpoints change: give one of the two another number.",
			clash.Number, o.service.Name, clash.NodePortOf)
	}
}

// clashEvents tell of the moment when a number began to end sessions.
func clashEvents(before, after *v1alpha1.ElasticService) []notice {
	is, was := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionUDPSessionsKept),
		meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionUDPSessionsKept)
	if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Message == is.Message {
		return nil
	}
	return []notice{{corev1.EventTypeWarning, is.Reason, "Proxy", is.Message}}
}

// byNodePort finds the ElasticServices with a UDP port that is a Service's node port.
func (r *Reconciler) byNodePort(ctx context.Context, o client.Object) []reconcile.Request {
	svc, ok := o.(*corev1.Service)
	if !ok {
		return nil
	}
	return r.byUDPPorts(ctx, udpports.NodePorts(svc), svc)
}

// byHostPort finds those with a UDP port that is a Server's host port.
func (r *Reconciler) byHostPort(ctx context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*v1alpha1.Server)
	if !ok {
		return nil
	}
	return r.byUDPPorts(ctx, udpports.HostPorts(s), s)
}

// byUDPPorts finds the ElasticServices with one of the numbers to whom it matters that
// somebody has it or hasn't: those of whom nothing clashes so far, and those whose
// condition names that one. Thousands may have the number of a game's usual port.
func (r *Reconciler) byUDPPorts(ctx context.Context, numbers []int32, of client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, number := range numbers {
		services, err := udpports.ServicesWith(ctx, r.Client, number)
		if err != nil {
			return nil // only when the cache is gone, and so are we
		}
		for i := range services {
			var list v1alpha1.ElasticServiceList
			// It is only read.
			err := r.Client.List(ctx, &list, client.InNamespace(services[i].Namespace), client.MatchingFields{IndexService: services[i].Name}, client.UnsafeDisableDeepCopy)
			if err != nil {
				return nil
			}
			for j := range list.Items {
				if es := &list.Items[j]; concerns(es, client.ObjectKeyFromObject(of)) {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)})
				}
			}
		}
	}
	return requests
}

// concerns reports whether it may matter to an ElasticService that an object got or lost
// a number.
func concerns(es *v1alpha1.ElasticService, key client.ObjectKey) bool {
	c := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionUDPSessionsKept)
	return c == nil || c.Status != metav1.ConditionFalse || strings.Contains(c.Message, key.String())
}

// hostPortsChanged lets through Servers that get UDP host ports, or lose them.
func hostPortsChanged() predicate.Predicate {
	has := func(o client.Object) bool {
		s, ok := o.(*v1alpha1.Server)
		return ok && len(udpports.HostPorts(s)) > 0
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Server)
			after, ok2 := e.ObjectNew.(*v1alpha1.Server)
			return ok1 && ok2 && !slices.Equal(udpports.HostPorts(before), udpports.HostPorts(after))
		},
	}
}

// observeClash looks for what else has the number of a UDP port of the Service.
func (r *Reconciler) observeClash(ctx context.Context, o *observed) (err error) {
	if o.service == nil {
		return nil
	}
	if o.clash, err = udpports.ClashOf(ctx, r.Client, o.service); err != nil {
		return fmt.Errorf("look for what else has a UDP port of Service %s: %w", client.ObjectKeyFromObject(o.service), err)
	}
	return nil
}
