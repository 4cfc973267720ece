package route

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
)

func TestRulesByAddressHoldOnlyWhereAddressesAreKnown(t *testing.T) {
	all := guard.Rules{
		Only: true, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Deny: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
		PerSourceRate: 2, PerServiceRate: 3, PerSource: guard.Limits{Connections: 4, Bytes: 5000, Sessions: 6}, SourcesKnown: true,
	}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       guard.Rules
	}{
		"the operator says that they are": {
			[]metav1.Condition{{Type: v1alpha1.ConditionSourceIPPreserved, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOK}}, all,
		},
		"the operator says that they aren't": {
			[]metav1.Condition{{Type: v1alpha1.ConditionSourceIPPreserved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSourceIPMasqueraded}},
			guard.Rules{PerServiceRate: 3},
		},
		"nobody asked for them when the operator looked": {
			[]metav1.Condition{{Type: v1alpha1.ConditionSourceIPPreserved, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNotNeeded}},
			guard.Rules{PerServiceRate: 3},
		},
		"the operator says nothing": {nil, guard.Rules{PerServiceRate: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			es := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolTCP, 10001)
			es.Spec.Wake = &v1alpha1.Wake{AllowCIDRs: []string{"192.0.2.7/24"}, DenyCIDRs: []string{"2001:db8::/32"}, PerSourceRate: 2, PerServiceRate: 3}
			es.Spec.Hold.PerSource = &v1alpha1.PerSource{MaxConnections: 4, MaxBytes: 5000, MaxSessions: 6}
			es.Status.Conditions = c.conditions
			got := Build(es.ElasticService).Ports[0].Guard
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}
