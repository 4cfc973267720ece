package status

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/schedule"
)

// Events are the events about what a pass has changed. They are emitted after the status is
// written.
func Events(before, after *v1alpha1.ElasticService, p planner.Plan) []kit.Notice {
	return slices.Concat(
		phaseEvents(before, after, p), conditionEvents(before, after), resolverEvents(before, after),
		frontEvents(before, after), clashEvents(before, after), awakeEvents(before, after, p),
	)
}

// phaseEvents are the events about a change of phase.
func phaseEvents(was, es *v1alpha1.ElasticService, p planner.Plan) []kit.Notice {
	before := was.Status.Phase
	if before == p.Phase {
		return nil
	}
	target := fmt.Sprintf("%s %s", es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	normal := func(reason, action, format string, args ...any) []kit.Notice {
		return []kit.Notice{kit.Normal(reason, action, format, args...)}
	}
	switch {
	case p.Phase == v1alpha1.PhaseFallingAsleep:
		return normal("FallingAsleep", "Sleep", "%s New clients go to the resolver now; %s is scaled to zero unless one comes.", p.Idle.Reason, target)
	case p.Phase == v1alpha1.PhaseAsleep && before != "" && !p.Commit:
		return normal("TargetAtZero", "Sleep", "%s has zero replicas, though not by Dormouse; the resolver stands in for it.", target)
	case p.Phase == v1alpha1.PhaseAwake && before == v1alpha1.PhaseFallingAsleep:
		if !p.Awake.Until.IsZero() || p.Group.By != "" {
			return normal("SleepCancelled", "Wake", "The service stays awake. %s", p.Idle.Reason)
		}
		return normal("SleepCancelled", "Wake", "The service stays awake: it is used again.")
	case p.Phase == v1alpha1.PhaseAwake && before != "":
		return normal("Awake", "Wake", "A server is up; new clients go to it.")
	case p.Phase == v1alpha1.PhaseWaking && before == v1alpha1.PhaseFallingAsleep && !meta.IsStatusConditionTrue(was.Status.Conditions, conditions.ServerUp):
		return normal("SleepCancelled", "Wake", "The service goes on waking: somebody waits for it again, or a container of its target runs.")
	case p.Phase == v1alpha1.PhaseWaking && (before == v1alpha1.PhaseAwake || before == v1alpha1.PhaseFallingAsleep):
		return []kit.Notice{kit.Warning("NoServerUp", "Proxy", "%s", "No server is up any more; the resolver holds new clients until one is.")}
	default:
		return nil
	}
}

// Asleep is the event about a target that was put to sleep.
func Asleep(es *v1alpha1.ElasticService, p planner.Plan, replicas int32) kit.Notice {
	next := "the next client wakes it"
	if !p.Awake.Asleep.IsZero() {
		next = "nothing wakes it until " + schedule.Clock(p.Awake.Asleep)
	}
	return kit.Normal("Asleep", "Sleep", "Scaled %s %s from %d replicas to zero; "+next+".",
		es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name, replicas)
}

// conditionEvents are the events about conditions that a user must fix and that have no event
// of their own.
func conditionEvents(before, after *v1alpha1.ElasticService) (list []kit.Notice) {
	for _, kind := range []string{conditions.TargetFound, conditions.TriggersHealthy, conditions.IdleSignal, conditions.AwakeWindowsValid, conditions.WakeGroupValid} {
		is, was := meta.FindStatusCondition(after.Status.Conditions, kind), meta.FindStatusCondition(before.Status.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		list = append(list, kit.Warning(is.Reason, "Reconcile", "%s", is.Message))
	}
	return list
}

// resolverEvents are emitted when no resolver can stand in any more.
func resolverEvents(before, after *v1alpha1.ElasticService) []kit.Notice {
	is, was := meta.FindStatusCondition(after.Status.Conditions, conditions.EndpointsInSync),
		meta.FindStatusCondition(before.Status.Conditions, conditions.EndpointsInSync)
	if is == nil || is.Reason != reasons.NoResolver || was != nil && was.Reason == is.Reason {
		return nil
	}
	return []kit.Notice{kit.Warning(is.Reason, "Proxy", "%s", is.Message)}
}

// frontEvents are emitted when a front can't be had any more.
func frontEvents(before, after *v1alpha1.ElasticService) []kit.Notice {
	is, was := meta.FindStatusCondition(after.Status.Conditions, conditions.FrontReady),
		meta.FindStatusCondition(before.Status.Conditions, conditions.FrontReady)
	if is == nil || is.Status != metav1.ConditionFalse || is.Reason == reasons.ResolverNotListening || was != nil && was.Message == is.Message {
		return nil
	}
	return []kit.Notice{kit.Warning(is.Reason, "Share", "%s", is.Message)}
}

// clashEvents are emitted when a port number begins to end sessions.
func clashEvents(before, after *v1alpha1.ElasticService) []kit.Notice {
	is, was := meta.FindStatusCondition(after.Status.Conditions, conditions.UDPSessionsKept),
		meta.FindStatusCondition(before.Status.Conditions, conditions.UDPSessionsKept)
	if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Message == is.Message {
		return nil
	}
	return []kit.Notice{kit.Warning(is.Reason, "Proxy", "%s", is.Message)}
}
