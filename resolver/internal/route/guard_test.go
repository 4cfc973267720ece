package route

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
)

func TestRulesByAddressHoldOnlyWhereAddressesAreKnown(t *testing.T) {
	all := guard.Rules{
		Only: true, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Deny: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
		PerSourceRate: 2, PerServiceRate: 3, PerSource: guard.Limits{Connections: 4, Bytes: 5000, Sessions: 6}, SourceIPsPreserved: true,
	}
	hidden := guard.Rules{PerServiceRate: 3}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		trusted    []string
		want       [2]guard.Rules // over TCP and UDP
	}{
		"the operator says that they are": {
			[]metav1.Condition{{Type: conditions.SourceIPPreserved, Status: metav1.ConditionTrue, Reason: reasons.OK}}, nil, [2]guard.Rules{all, all},
		},
		"the operator says that they aren't": {
			[]metav1.Condition{{Type: conditions.SourceIPPreserved, Status: metav1.ConditionFalse, Reason: reasons.SourceIPMasqueraded}},
			nil,
			[2]guard.Rules{hidden, hidden},
		},
		"nobody asked for them when the operator looked": {
			[]metav1.Condition{{Type: conditions.SourceIPPreserved, Status: metav1.ConditionTrue, Reason: reasons.NotNeeded}},
			nil,
			[2]guard.Rules{hidden, hidden},
		},
		"the operator says nothing": {nil, nil, [2]guard.Rules{hidden, hidden}},
		"a load balancer tells":     {nil, []string{"10.0.0.0/8"}, [2]guard.Rules{all, hidden}},
	} {
		t.Run(name, func(t *testing.T) {
			es := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolTCP, 10001).port("voice", v1alpha1.ProtocolUDP, 10002)
			es.Spec.Handoff, es.Spec.ProxyProtocol = v1alpha1.HandoffNever, &v1alpha1.ProxyProtocol{TrustedCIDRs: c.trusted}
			es.Spec.Wake = &v1alpha1.Wake{AllowCIDRs: []string{"192.0.2.7/24"}, DenyCIDRs: []string{"2001:db8::/32"}, PerSourceRate: 2, PerServiceRate: 3}
			es.Spec.Hold.PerSource = &v1alpha1.PerSource{MaxConnections: 4, MaxBytes: 5000, MaxSessions: 6}
			es.Status.Conditions = c.conditions
			ports := Build(es.ElasticService).Ports
			got := [2]guard.Rules{ports[0].Guard, ports[1].Guard}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}
