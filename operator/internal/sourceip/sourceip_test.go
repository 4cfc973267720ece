package sourceip

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestRulesByAddressAskForTheirs(t *testing.T) {
	wake := func(w v1alpha1.Wake) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) { es.Spec.Wake = &w }
	}
	deny := wake(v1alpha1.Wake{DenyCIDRs: []string{"192.0.2.0/24"}})
	service := func(kind corev1.ServiceType, external corev1.ServiceExternalTrafficPolicy, internal corev1.ServiceInternalTrafficPolicy) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "lobby"},
			Spec:       corev1.ServiceSpec{Type: kind, ExternalTrafficPolicy: external, InternalTrafficPolicy: &internal},
		}
	}
	const (
		local, cluster                 = corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster
		internallyLocal, internallyAll = corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster
	)
	balanced := service(corev1.ServiceTypeLoadBalancer, local, internallyAll)
	addressed := service(corev1.ServiceTypeClusterIP, cluster, internallyLocal)
	addressed.Spec.ExternalIPs = []string{"192.0.2.1"}
	trusting := func(es *v1alpha1.ElasticService) {
		deny(es)
		es.Spec.ProxyProtocol = &v1alpha1.ProxyProtocol{TrustedCIDRs: []string{"10.0.0.0/8"}}
	}
	mixed := service(corev1.ServiceTypeLoadBalancer, cluster, internallyAll)
	mixed.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP}, {Name: "udp", Protocol: corev1.ProtocolUDP}}
	for name, c := range map[string]struct {
		handoff v1alpha1.Handoff
		with    func(*v1alpha1.ElasticService)
		service *corev1.Service
		status  metav1.ConditionStatus
		reason  string
		says    string
	}{
		"nothing goes by addresses": {
			v1alpha1.HandoffDirect, wake(v1alpha1.Wake{PerServiceRate: 3}), service(corev1.ServiceTypeLoadBalancer, cluster, internallyAll),
			metav1.ConditionTrue, reasons.NotNeeded, "no rule",
		},
		"nothing does, and they are known": {
			v1alpha1.HandoffNever, nil, balanced, metav1.ConditionTrue, reasons.OK, "own addresses",
		},
		"a load balancer's clients": {v1alpha1.HandoffNever, deny, balanced, metav1.ConditionTrue, reasons.OK, "own addresses"},
		"a load balancer's clients by way of any node": {
			v1alpha1.HandoffNever, deny, service(corev1.ServiceTypeLoadBalancer, cluster, internallyLocal),
			metav1.ConditionFalse, reasons.SourceIPMasqueraded, "wake.denyCIDRs. That takes externalTrafficPolicy: Local on Service lobby or, for TCP, proxyProtocol.trustedCIDRs.",
		},
		"a handoff that nodes with no resolver have no part in": {
			v1alpha1.HandoffDirect, deny, balanced,
			metav1.ConditionFalse, reasons.SourceIPMasqueraded, "That takes handoff: Never and, on Service lobby, externalTrafficPolicy: Local or, for TCP, proxyProtocol.trustedCIDRs.",
		},
		"a node port's": {v1alpha1.HandoffNever, deny, service(corev1.ServiceTypeNodePort, local, internallyAll), metav1.ConditionTrue, reasons.OK, ""},
		"pods of the node": {
			v1alpha1.HandoffNever, deny, service(corev1.ServiceTypeClusterIP, "", internallyLocal), metav1.ConditionTrue, reasons.OK, "",
		},
		"pods of all nodes": {
			v1alpha1.HandoffNever, deny, service(corev1.ServiceTypeClusterIP, "", internallyAll),
			metav1.ConditionFalse, reasons.SourceIPMasqueraded, "internalTrafficPolicy: Local",
		},
		"an external address": {
			v1alpha1.HandoffNever, deny, addressed, metav1.ConditionFalse, reasons.SourceIPMasqueraded, "externalTrafficPolicy: Local",
		},
		"all that goes by addresses": {
			v1alpha1.HandoffDirect, func(es *v1alpha1.ElasticService) {
				es.Spec.Wake = &v1alpha1.Wake{AllowCIDRs: []string{"::/0"}, DenyCIDRs: []string{"::/0"}, PerSourceRate: 1}
				es.Spec.Hold.PerSource = &v1alpha1.PerSource{MaxSessions: 1}
			}, balanced,
			metav1.ConditionFalse, reasons.SourceIPMasqueraded, "wake.allowCIDRs, wake.denyCIDRs, wake.perSourceRate, hold.perSource. That",
		},
		"clients of load balancers that tell": {v1alpha1.HandoffNever, trusting, service(corev1.ServiceTypeLoadBalancer, cluster, internallyAll), metav1.ConditionTrue, reasons.OK, ""},
		"clients of load balancers that can tell of some": {
			v1alpha1.HandoffNever, trusting, mixed, metav1.ConditionFalse, reasons.SourceIPMasqueraded, "over UDP that takes externalTrafficPolicy: Local",
		},
		"no Service": {v1alpha1.HandoffNever, deny, nil, metav1.ConditionUnknown, reasons.NotObserved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
			es.Spec.Handoff = c.handoff
			if c.with != nil {
				c.with(es)
			}
			got := Condition(es, c.service)
			if got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
				t.Errorf("got %s %s %q, want %s %s with %q", got.Status, got.Reason, got.Message, c.status, c.reason, c.says)
			}
		})
	}
}
