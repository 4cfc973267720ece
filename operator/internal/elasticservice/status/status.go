// Package status writes what a pass observed, found and decided into an ElasticService's
// status, and makes the events for it. Every condition is set on every pass, and is Unknown
// where it could not be observed.
//
// It is a function of observed, findings and plan. Writing the status to the API server, and
// the events after it, is the controller's.
package status

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/savings"
	"dormouse.dev/dormouse/operator/internal/sourceip"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/target"
)

// Set writes what a pass observed, found and decided into the object's status.
func Set(now time.Time, es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings, p planner.Plan) {
	s := &es.Status
	s.ObservedGeneration = es.Generation
	if f.Obstacle == nil {
		if s.Phase != p.Phase && p.Phase != "" {
			savings.End(now, s)
			if s.Phase == v1alpha1.PhaseAsleep {
				s.SleptUntil = &metav1.MicroTime{Time: now}
			}
			if p.Phase == v1alpha1.PhaseAsleep {
				s.LastSleepTime = &metav1.MicroTime{Time: now}
				keepReplicas(es, p)
			}
			s.PhaseSince = &metav1.MicroTime{Time: now}
		}
		s.Phase, s.Mode = p.Phase, p.Mode
		s.IdleSince = idleness.Kept(now, es, p.Idle, p.Phase)
		s.Sessions, s.Queued = p.Sessions, p.Queued
		s.KeptAwake, s.WaitsFor = keptAwake(es, p), p.WaitsFor
		if o.Scale.Err == nil {
			s.Replicas = o.Scale.Replicas
			s.Readiness = o.Scale.Readiness
			if s.Replicas > 0 && s.AsleepTarget != nil && target.Same(s.AsleepTarget.ScaleTargetRef, es.Spec.ScaleTargetRef) {
				s.AsleepTarget = nil
			}
		}
	}
	if f.Obstacle != nil {
		// Nobody sees to it that what it waits for comes, nor wakes it.
		s.WaitsFor = nil
		if s.Phase == v1alpha1.PhaseAsleep {
			s.KeptAwake = nil
		}
	}
	s.PodsBeforeSleep = o.Unsettled.List()
	keepLists(es, o)
	condition.SetAll(&s.Conditions, es.Generation, metav1.Time{Time: now}, conditionsOf(now, es, o, f, p)...)
}

// keepReplicas notes with how many replicas a service has fallen asleep. A target that somebody
// scaled to zero by hand had the replicas that were seen last, and nobody knows what its pods
// requested.
func keepReplicas(es *v1alpha1.ElasticService, p planner.Plan) {
	if p.Commit {
		return
	}
	es.Status.AsleepRequests = nil
	if es.Status.Replicas > 0 {
		es.Status.ReplicasBeforeSleep = es.Status.Replicas
	}
}

// keepLists writes the players of the lists into the status. While a list can't be read its
// previous players stay. A list that could never be read is empty.
func keepLists(es *v1alpha1.ElasticService, o planner.Observed) {
	if len(index.PlayerLists(es)) == 0 {
		es.Status.WakePlayers = nil
		return
	}
	before := es.Status.WakePlayers
	if before == nil {
		before = &v1alpha1.WakePlayersStatus{}
	}
	keep := func(from *v1alpha1.PlayerList, read *[]string, before []string) []string {
		switch {
		case from == nil:
			return nil
		case read == nil:
			return before
		}
		return *read
	}
	p := es.Spec.Wake.Players
	es.Status.WakePlayers = &v1alpha1.WakePlayersStatus{
		Allow: keep(p.AllowFrom, o.Lists.Allow, before.Allow), Deny: keep(p.DenyFrom, o.Lists.Deny, before.Deny),
	}
}

// conditionsOf are all conditions of an ElasticService. Ready sums up the others: its message is
// that of the first problem.
func conditionsOf(now time.Time, es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings, p planner.Plan) []metav1.Condition {
	blocked := planner.Blocked(es, o, spec.Of(es).Handoff)
	list := []metav1.Condition{
		targetFound(es, o),
		endpointsInSync(now, es, o, f, p),
		triggersHealthy(es, o),
		playersKnown(es, o),
		idleSignal(es, blocked),
		directGated(es, o),
		drainSafe(es, o),
		udpSessionsKept(o),
		sourceip.Condition(es, o.Service),
		trafficPolicy(es, o),
		serverUp(o, f),
		frontReady(es, o, f),
		wakePlayersKnown(es, o),
		autoscalerReady(o),
		awakeWindowsValid(es, o, f, p),
		wakeGroupValid(es, o, f, p),
	}
	ready := condition.True(conditions.Ready, reasons.OK, "The service sleeps and wakes as asked.")
	switch {
	case f.Obstacle != nil:
		ready = condition.False(conditions.Ready, f.Obstacle.Reason, "%s", f.Obstacle.Message)
	case list[0].Status != metav1.ConditionTrue:
		ready = condition.False(conditions.Ready, list[0].Reason, "%s", list[0].Message)
	case blocked != nil:
		ready = condition.False(conditions.Ready, blocked.Reason, "%s", blocked.Message)
	case f.Flaw != nil:
		ready = condition.False(conditions.Ready, f.Flaw.Reason, "%s", f.Flaw.Message)
	case list[1].Status != metav1.ConditionTrue:
		ready = condition.False(conditions.Ready, list[1].Reason, "%s", list[1].Message)
	case f.Cause != nil && f.Cause.Wrong:
		ready = condition.False(conditions.Ready, f.Cause.Reason, "%s", f.Cause.Sentence)
	case f.Front != nil:
		ready = condition.False(conditions.Ready, f.Front.Reason, "%s", f.Front.Message)
	default:
		// It wakes for clients as asked, and may not sleep like that.
		for _, c := range list {
			if c.Status == metav1.ConditionFalse && slices.Contains(mayNotSleep, c.Type) {
				ready = condition.False(conditions.Ready, c.Reason, "%s", c.Message)
				break
			}
		}
	}
	return append(list, ready)
}

// mayNotSleep are the conditions that explain, where they are False, why a service doesn't sleep,
// or isn't kept awake, as the spec asks.
var mayNotSleep = []string{conditions.TriggersHealthy, conditions.PlayersKnown, conditions.IdleSignal, conditions.AutoscalerReady, conditions.AwakeWindowsValid, conditions.WakeGroupValid}
