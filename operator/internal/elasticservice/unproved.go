package elasticservice

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
)

// A pod without a readiness probe counts as ready as soon as its container runs, and may
// listen much later. The clients whom resolvers hold tell: a resolver connects to the server
// for each of them, again and again. As long as they wait and none has got through, over
// whichever port, the
// service goes on waking, so that new clients are held with them and not refused.

// trustedAfter is when a server that takes none of the waiting clients is up by Kubernetes'
// word alone: its port may be closed to resolvers only, or be another.
const trustedAfter = diagnosis.Patience

// unproved reports whether nothing but its clients tells that a server listens, of those
// that get their clients from Dormouse.
func (o *observed) unproved(es *v1alpha1.ElasticService) bool {
	return o.service != nil && len(o.service.Spec.Selector) == 0 && o.scale.readiness == v1alpha1.PodReadinessConnect &&
		handoff(es) == v1alpha1.HandoffDirect &&
		slices.ContainsFunc(es.Status.Ports, func(p v1alpha1.PortStatus) bool { return p.Protocol.Transport() == corev1.ProtocolTCP })
}

// takesNobodyYet reports whether clients wait for servers that are up as far as Kubernetes
// knows, and none of them has got through.
func (o *observed) takesNobodyYet(now time.Time, es *v1alpha1.ElasticService, c clients) bool {
	return o.unproved(es) && c.queued > 0 && c.sessions == 0 && now.Sub(o.upSince) < trustedAfter
}

// askAgain is when to ask the resolvers again about a server that has been up for a time:
// soon, since clients reach it through them until then, and less often if it takes long.
func askAgain(up time.Duration) time.Duration { return max(200*time.Millisecond, up/4) }
