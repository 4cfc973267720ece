package route

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
)

// sourcesKnown reports whether the clients of an ElasticService's own port are seen as who they
// are: by the operator's word, or a load balancer's.
func sourcesKnown(es *v1alpha1.ElasticService, network Network, proxy Proxy) bool {
	c := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionSourceIPPreserved)
	preserved := c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonOK
	return preserved || network == TCP && len(proxy.Trusted) > 0
}

// rulesOf are an ElasticService's rules of who may wake it, without those that go by
// the client's address where that isn't known.
func rulesOf(es *v1alpha1.ElasticService, known bool) guard.Rules {
	var rules guard.Rules
	if w := es.Spec.Wake; w != nil {
		rules = guard.NewRules(w.AllowCIDRs, w.DenyCIDRs)
		rules.PerSourceRate, rules.PerServiceRate = w.PerSourceRate, w.PerServiceRate
	}
	if s := es.Spec.Hold.PerSource; s != nil {
		rules.PerSource = guard.Limits{Connections: s.MaxConnections, Bytes: s.MaxBytes, Sessions: s.MaxSessions}
	}
	if rules.SourcesKnown = known; !known {
		return rules.Hidden()
	}
	return rules
}
