package route

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/maintenance"
	"dormouse.dev/dormouse/resolver/internal/guard"
)

// sourceIPsPreserved reports whether clients of an ElasticService's own port are seen with
// their own addresses, according to the operator or through a load balancer's PROXY protocol.
func sourceIPsPreserved(es *v1alpha1.ElasticService, network Network, proxy Proxy) bool {
	c := meta.FindStatusCondition(es.Status.Conditions, conditions.SourceIPPreserved)
	preserved := c != nil && c.Status == metav1.ConditionTrue && c.Reason == reasons.OK
	return preserved || network == TCP && len(proxy.Trusted) > 0
}

// rulesOf are an ElasticService's rules of who may wake it. Where clients' addresses aren't
// preserved, rules by address are left out.
func rulesOf(es *v1alpha1.ElasticService, preserved bool) guard.Rules {
	var rules guard.Rules
	if w := es.Spec.Wake; w != nil {
		rules = guard.NewRules(w.AllowCIDRs, w.DenyCIDRs)
		rules.PerSourceRate, rules.PerServiceRate = w.PerSourceRate, w.PerServiceRate
	}
	rules.Nobody, rules.DownUntil = sleepsOn(es), downUntil(es)
	if s := es.Spec.Hold.PerSource; s != nil {
		rules.PerSource = guard.Limits{Connections: s.MaxConnections, Bytes: s.MaxBytes, Sessions: s.MaxSessions}
	}
	if rules.SourceIPsPreserved = preserved; !preserved {
		return rules.Hidden()
	}
	return rules
}

// downUntil is until when an ElasticService that sleeps, or is about to, is kept asleep; zero: it
// isn't. A value that can't be read counts for nothing, and the operator says so.
func downUntil(es *v1alpha1.ElasticService) time.Time {
	until, err := maintenance.Until(es.Annotations)
	if r := (Route{Phase: es.Status.Phase}); err != nil || !r.AwaitsWake() {
		return time.Time{}
	}
	return until
}

// sleepsOn reports whether an ElasticService sleeps, or is about to, and no client may wake it.
func sleepsOn(es *v1alpha1.ElasticService) bool {
	r := Route{Phase: es.Status.Phase}
	return es.Spec.Wake != nil && es.Spec.Wake.When == v1alpha1.WakeOnNever && r.AwaitsWake()
}
