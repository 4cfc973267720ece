package planner

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/text"
)

// SetStatus writes what a pass found and decided into the status. had is what the status remembered
// before, see Memories.
func SetStatus(now time.Time, gas *v1alpha1.GameAutoscaler, o Observed, p Plan, had map[string]string) {
	s := &gas.Status
	s.ObservedGeneration = gas.Generation
	s.CurrentReplicas, s.DesiredReplicas = o.Current, p.Desired
	s.KeepAwakeUntil = nil
	if !p.KeepAwake.IsZero() {
		s.KeepAwakeUntil = &metav1.Time{Time: p.KeepAwake.Truncate(time.Second)}
	}
	if p.wishes == nil {
		keepOnlyMemory(s, p.active.reason)
	} else {
		s.Policies = nil
	}
	for _, w := range p.wishes {
		s.Policies = append(s.Policies, v1alpha1.AutoscalerPolicyStatus{Name: w.policy, Wish: w.replicas, Reason: w.reason, Message: text.Bounded(w.message)})
	}
	condition.SetAll(&s.Conditions, gas.Generation, metav1.NewTime(now),
		p.active.of(conditions.Active), p.able.of(conditions.AbleToScale), p.limited.of(conditions.Limited))
	keepMemory(had, gas, p.History)
}

// SetObstacle writes into the status why the target isn't scaled.
func SetObstacle(now time.Time, gas *v1alpha1.GameAutoscaler, ob *obstacle.Obstacle) {
	s := &gas.Status
	s.ObservedGeneration = gas.Generation
	s.CurrentReplicas, s.DesiredReplicas, s.KeepAwakeUntil = 0, 0, nil
	keepOnlyMemory(s, ob.Reason)
	condition.SetAll(&s.Conditions, gas.Generation, metav1.NewTime(now),
		condition.False(conditions.Active, ob.Reason, "%s", ob.Message),
		condition.Unknown(conditions.AbleToScale, ob.Reason, "%s", ob.Message),
		condition.Unknown(conditions.Limited, ob.Reason, "%s", ob.Message))
}

// keepOnlyMemory clears what the policies wish, where they aren't asked for that reason, but not what
// they remember.
func keepOnlyMemory(s *v1alpha1.GameAutoscalerStatus, reason string) {
	s.Policies = slices.DeleteFunc(slices.Clone(s.Policies), func(p v1alpha1.AutoscalerPolicyStatus) bool { return p.Memory == "" })
	for i := range s.Policies {
		s.Policies[i].Wish, s.Policies[i].Reason, s.Policies[i].Message = nil, reason, ""
	}
}

func (c verdict) of(kind string) metav1.Condition {
	switch c.status {
	case metav1.ConditionTrue:
		return condition.True(kind, c.reason, "%s", c.message)
	case metav1.ConditionFalse:
		return condition.False(kind, c.reason, "%s", c.message)
	default:
		return condition.Unknown(kind, c.reason, "%s", c.message)
	}
}
