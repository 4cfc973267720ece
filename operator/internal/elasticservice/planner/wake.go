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
	"dormouse.dev/dormouse/operator/internal/times"
)

// decideGivingUp has a service fall asleep whose servers don't come up, once no client waits for
// them any more and none can be on one.
func (d *decision) decideGivingUp() {
	c := d.clients
	measured := d.is.Handoff == v1alpha1.HandoffNever || d.is.HasTriggers || d.is.HasPlayers
	if d.deleting || !d.o.Nobody || !measured || d.mayNotSleep() || d.is.SleepAfter == 0 || c.err != nil || c.active > 0 || c.queued > 0 {
		return
	}
	// It would be woken again at once.
	if d.kept.Open {
		return
	}
	if left := d.kept.Until.Sub(d.now); left > 0 {
		d.RequeueAfter.AtMost(left)
		return
	}
	since := times.Latest(d.o.NoneLastingSince, c.lastActive, c.watched, d.is.LastWake, times.Micro(d.es.Status.LastSleepTime))
	if left := since.Add(d.is.SleepAfter).Sub(d.now); left > 0 {
		d.RequeueAfter.AtMost(left)
		return
	}
	d.Idle = idleness.Verdict{Sleep: true, Reason: fmt.Sprintf("No server comes up, and nobody has waited for one for %s.", d.is.SleepAfter)}
	switch {
	case d.es.Status.Phase == v1alpha1.PhaseFallingAsleep:
		d.decideCommit()
	case endpoints.AnyEligible(d.es.Status.Ports, d.o.Resolvers):
		d.Phase = v1alpha1.PhaseFallingAsleep
		d.RequeueAfter.AtMost(d.settleTime())
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

// takesNobodyYet reports whether none of the clients has got through that wait for servers, which are
// up according to Kubernetes.
func (d *decision) takesNobodyYet() bool {
	return d.clients.sessions == 0 && d.now.Sub(d.o.UpSince) < trustedAfter && d.unproved()
}

// unproved reports whether only clients can show that a server listens, where they get there by
// the slices of Dormouse.
func (d *decision) unproved() bool {
	return d.o.Service != nil && len(d.o.Service.Spec.Selector) == 0 && d.o.Scale.Readiness == v1alpha1.PodReadinessConnect &&
		d.o.Is.Handoff == v1alpha1.HandoffDirect &&
		slices.ContainsFunc(d.es.Status.Ports, func(p v1alpha1.PortStatus) bool { return p.Protocol.Transport() == corev1.ProtocolTCP })
}

// untilAskedAgain is when to ask the resolvers again about a server that has been up for a
// time: after a short time, since clients reach it through them until then, and less often if
// it takes long.
func untilAskedAgain(up time.Duration) time.Duration { return max(200*time.Millisecond, up/4) }
