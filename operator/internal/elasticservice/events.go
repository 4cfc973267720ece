package elasticservice

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// notice is something that a person would ask about.
type notice struct {
	kind, reason, action, note string
}

func emit(recorder events.EventRecorder, es *v1alpha1.ElasticService, list []notice) {
	for _, e := range list {
		recorder.Eventf(es, nil, e.kind, e.reason, e.action, "%s", e.note)
	}
}

// phaseEvents tell of a change of phase, once it is written.
func phaseEvents(before v1alpha1.Phase, es *v1alpha1.ElasticService, p plan) []notice {
	if before == p.phase {
		return nil
	}
	target := fmt.Sprintf("%s %s", es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	normal := func(reason, action, format string, args ...any) []notice {
		return []notice{{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)}}
	}
	switch {
	case p.phase == v1alpha1.PhaseFallingAsleep:
		return normal("FallingAsleep", "Sleep", "%s New clients go to the resolver now; %s is scaled to zero unless one comes.", p.idle.reason, target)
	case p.phase == v1alpha1.PhaseAsleep && before != "" && !p.commit:
		return normal("TargetAtZero", "Sleep", "%s has zero replicas, though not by Dormouse; the resolver stands in for it.", target)
	case p.phase == v1alpha1.PhaseAwake && before == v1alpha1.PhaseFallingAsleep:
		return normal("SleepCancelled", "Wake", "The service stays awake: it is used again.")
	case p.phase == v1alpha1.PhaseAwake && before != "":
		return normal("Awake", "Wake", "A server is up; new clients go to it.")
	case p.phase == v1alpha1.PhaseWaking && isAwake(before):
		return []notice{{corev1.EventTypeWarning, "NoServerUp", "Proxy", "No server is up any more; the resolver holds new clients until one is."}}
	default:
		return nil
	}
}

func asleepEvent(es *v1alpha1.ElasticService, replicas int32) notice {
	return notice{corev1.EventTypeNormal, "Asleep", "Sleep", fmt.Sprintf("Scaled %s %s from %d replicas to zero; the next client wakes it.",
		es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name, replicas)}
}

// conditionEvents tell of what a user must mend that has no event of its own, once a
// condition says so.
func conditionEvents(before, after *v1alpha1.ElasticService) (list []notice) {
	for _, kind := range []string{v1alpha1.ConditionTargetFound, v1alpha1.ConditionTriggersHealthy, v1alpha1.ConditionIdleSignal} {
		is, was := meta.FindStatusCondition(after.Status.Conditions, kind), meta.FindStatusCondition(before.Status.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		list = append(list, notice{corev1.EventTypeWarning, is.Reason, "Reconcile", is.Message})
	}
	return list
}

// resolverEvents tell of the moment when nobody can stand in any more.
func resolverEvents(before, after *v1alpha1.ElasticService) []notice {
	is, was := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionEndpointsInSync),
		meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionEndpointsInSync)
	if is == nil || is.Reason != v1alpha1.ReasonNoResolver || was != nil && was.Reason == is.Reason {
		return nil
	}
	return []notice{{corev1.EventTypeWarning, is.Reason, "Proxy", is.Message}}
}

// frontEvents tell of the moment when a front can't be had any more.
func frontEvents(before, after *v1alpha1.ElasticService) []notice {
	is, was := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionFrontReady),
		meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionFrontReady)
	if is == nil || is.Status != metav1.ConditionFalse || is.Reason == v1alpha1.ReasonResolverNotListening || was != nil && was.Message == is.Message {
		return nil
	}
	return []notice{{corev1.EventTypeWarning, is.Reason, "Share", is.Message}}
}

func obstacleEvent(c obstacle) notice {
	return notice{corev1.EventTypeWarning, c.reason, "Reconcile", c.message}
}
