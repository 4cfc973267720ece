// Package sourceip tells whether the resolver sees clients' own addresses, and which fields
// of a spec go by them. It is a function of an ElasticService and of the Service through
// which the clients come.
package sourceip

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// Condition says whether the resolver sees clients' own addresses. Resolvers
// go by this condition: only where it is True for the reason OK they apply what goes
// by addresses.
func Condition(es *v1alpha1.ElasticService, svc *corev1.Service) metav1.Condition {
	const kind = v1alpha1.ConditionSourceIPPreserved
	if svc == nil {
		return condition.Unknown(kind, v1alpha1.ReasonNotObserved, "The Service is not known.")
	}
	why := masqueraded(es, svc)
	rules := Rules(es)
	switch {
	case why == "":
		return condition.True(kind, v1alpha1.ReasonOK, "The resolver sees clients' own addresses.")
	case len(rules) == 0:
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The spec has no rule that goes by clients' addresses.")
	}
	return condition.False(kind, v1alpha1.ReasonSourceIPMasqueraded,
		"The resolver may see a node's address instead of the client's, so that these aren't applied: %s. %s Limits of the whole service are applied.",
		strings.Join(rules, ", "), why)
}

// masqueraded says why clients may come from a node's address, and what to change;
// empty when they don't.
func masqueraded(es *v1alpha1.ElasticService, svc *corev1.Service) string {
	field, local := LocalPolicy(svc)
	switch {
	case !local && toldByProxy(es) && !udpports.Has(svc):
		// The load balancer tells.
	case !local && toldByProxy(es):
		return fmt.Sprintf("Over TCP they are, because load balancers tell addresses; over UDP that takes %s: Local on Service %s.", field, svc.Name)
	case es.Spec.Handoff != v1alpha1.HandoffNever:
		return fmt.Sprintf("That takes handoff: Never and, on Service %[2]s, %[1]s: Local or, for TCP, proxyProtocol.trustedCIDRs.", field, svc.Name)
	case !local:
		return fmt.Sprintf("That takes %s: Local on Service %s or, for TCP, proxyProtocol.trustedCIDRs.", field, svc.Name)
	}
	return ""
}

// toldByProxy reports whether load balancers tell where clients are, over TCP.
func toldByProxy(es *v1alpha1.ElasticService) bool {
	return es.Spec.Handoff == v1alpha1.HandoffNever && es.Spec.ProxyProtocol != nil && len(es.Spec.ProxyProtocol.TrustedCIDRs) > 0
}

// LocalPolicy is the policy that clients of a Service go by, and whether it keeps
// them on the node where they arrive, as who they are.
func LocalPolicy(svc *corev1.Service) (field string, local bool) {
	if svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer || len(svc.Spec.ExternalIPs) > 0 {
		return "externalTrafficPolicy", svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	}
	internal := svc.Spec.InternalTrafficPolicy
	return "internalTrafficPolicy", internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal
}

// Rules are the fields that go by the client's address.
func Rules(es *v1alpha1.ElasticService) (fields []string) {
	if w := es.Spec.Wake; w != nil {
		if len(w.AllowCIDRs) > 0 {
			fields = append(fields, "wake.allowCIDRs")
		}
		if len(w.DenyCIDRs) > 0 {
			fields = append(fields, "wake.denyCIDRs")
		}
		if w.PerSourceRate > 0 {
			fields = append(fields, "wake.perSourceRate")
		}
	}
	if es.Spec.Hold.PerSource != nil {
		fields = append(fields, "hold.perSource")
	}
	return fields
}
