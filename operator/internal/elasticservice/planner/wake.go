package planner

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/times"
)

// planGivingUp has a service fall asleep whose servers don't come up, once no client waits for
// them any more and none can be on one.
func (p *Plan) planGivingUp(now time.Time, es *v1alpha1.ElasticService, o Observed, f Findings, clients clients, deleting bool) {
	measured := spec.Handoff(es) == v1alpha1.HandoffNever || spec.HasTriggers(es) || spec.HasPlayers(es)
	if deleting || !o.Nobody || !measured || mayNotSleep(es, o, f) || spec.SleepAfter(es) == 0 || clients.err != nil || clients.sessions > 0 || clients.queued > 0 {
		return
	}
	// It would be woken again at once.
	if kept := p.keptAwake(o); kept.Open {
		return
	} else if left := kept.Until.Sub(now); left > 0 {
		p.RequeueAfter.AtMost(left)
		return
	}
	since := times.Latest(o.NoneLastingSince, clients.lastActive, clients.watched, times.Micro(es.Status.LastWakeTime), times.Micro(es.Status.LastSleepTime))
	if left := since.Add(spec.SleepAfter(es)).Sub(now); left > 0 {
		p.RequeueAfter.AtMost(left)
		return
	}
	p.Idle = idleness.Verdict{Sleep: true, Reason: fmt.Sprintf("No server comes up, and nobody has waited for one for %s.", spec.SleepAfter(es))}
	switch {
	case es.Status.Phase == v1alpha1.PhaseFallingAsleep:
		p.planCommit(now, es, o)
	case endpoints.AnyEligible(es.Status.Ports, o.Resolvers):
		p.Phase = v1alpha1.PhaseFallingAsleep
		p.RequeueAfter.AtMost(settleTime(es))
	}
}

// A pod without a readiness probe counts as ready as soon as its container runs, and may listen
// much later. Whether it listens shows in the clients that resolvers hold: a resolver connects
// to the server for each of them, again and again. As long as they wait and none has got
// through, on whichever port, the service goes on waking, so that new clients are held with
// them and not refused.

// trustedAfter is when a server that takes none of the waiting clients counts as up because
// Kubernetes reports it as ready: its port may be closed to resolvers only, or be another one.
const trustedAfter = diagnosis.Patience

// Unproved reports whether only clients can show that a server listens, where they get there by
// the slices of Dormouse.
func (o *Observed) Unproved(es *v1alpha1.ElasticService) bool {
	return o.Service != nil && len(o.Service.Spec.Selector) == 0 && o.Scale.Readiness == v1alpha1.PodReadinessConnect &&
		spec.Handoff(es) == v1alpha1.HandoffDirect &&
		slices.ContainsFunc(es.Status.Ports, func(p v1alpha1.PortStatus) bool { return p.Protocol.Transport() == corev1.ProtocolTCP })
}

// takesNobodyYet reports whether clients wait for servers that are up according to Kubernetes,
// and none of them has got through.
func (o *Observed) takesNobodyYet(now time.Time, es *v1alpha1.ElasticService, c clients) bool {
	return o.Unproved(es) && c.queued > 0 && c.sessions == 0 && now.Sub(o.UpSince) < trustedAfter
}

// untilAskedAgain is when to ask the resolvers again about a server that has been up for a
// time: after a short time, since clients reach it through them until then, and less often if
// it takes long.
func untilAskedAgain(up time.Duration) time.Duration { return max(200*time.Millisecond, up/4) }
