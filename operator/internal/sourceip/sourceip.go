// Package sourceip decides whether the resolver sees clients' own addresses, and lists the
// fields of a spec that depend on that. It is a function of an ElasticService and of the
// Service through which the clients come.
package sourceip

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// Condition is the condition whether the resolver sees clients' own addresses. Resolvers apply
// settings by address only where it is True with the reason OK.
func Condition(es *v1alpha1.ElasticService, svc *corev1.Service) metav1.Condition {
	const kind = conditions.SourceIPPreserved
	if svc == nil {
		return condition.Unknown(kind, reasons.NotObserved, "The Service is not known.")
	}
	why := masqueraded(es, svc)
	rules := Rules(es)
	switch {
	case why == "":
		return condition.True(kind, reasons.OK, "The resolver sees clients' own addresses.")
	case len(rules) == 0:
		return condition.True(kind, reasons.NotNeeded, "The spec has no rule that goes by clients' addresses.")
	}
	return condition.False(kind, reasons.SourceIPMasqueraded,
		"The resolver may see a node's address instead of the client's, so that these aren't applied: %s. %s Limits of the whole service are applied.",
		strings.Join(rules, ", "), why)
}

// masqueraded explains why clients may come from a node's address, and what to change; empty
// when they don't.
func masqueraded(es *v1alpha1.ElasticService, svc *corev1.Service) string {
	field, local := LocalPolicy(svc)
	switch {
	case !local && proxyNamesSources(es) && !udpports.Has(svc):
		// The load balancer sends the clients' addresses.
	case !local && proxyNamesSources(es):
		return fmt.Sprintf("Over TCP they are, because load balancers tell addresses; over UDP that takes %s: Local on Service %s.", field, svc.Name)
	case es.Spec.Handoff != v1alpha1.HandoffNever:
		return fmt.Sprintf("That takes handoff: Never and, on Service %[2]s, %[1]s: Local or, for TCP, proxyProtocol.trustedCIDRs.", field, svc.Name)
	case !local:
		return fmt.Sprintf("That takes %s: Local on Service %s or, for TCP, proxyProtocol.trustedCIDRs.", field, svc.Name)
	}
	return ""
}

// proxyNamesSources reports whether load balancers send clients' addresses, over TCP.
func proxyNamesSources(es *v1alpha1.ElasticService) bool {
	return es.Spec.Handoff == v1alpha1.HandoffNever && es.Spec.ProxyProtocol != nil && len(es.Spec.ProxyProtocol.TrustedCIDRs) > 0
}

// LocalPolicy is the name of the traffic policy that applies to a Service's clients, and
// whether it keeps them on the node where they arrive, with their own addresses.
func LocalPolicy(svc *corev1.Service) (field string, local bool) {
	if svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer || len(svc.Spec.ExternalIPs) > 0 {
		return "externalTrafficPolicy", svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	}
	internal := svc.Spec.InternalTrafficPolicy
	return "internalTrafficPolicy", internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal
}

// Rules are the fields that depend on the client's address.
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
