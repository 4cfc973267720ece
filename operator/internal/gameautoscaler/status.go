package gameautoscaler

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// setStatus writes what a pass found and decided into the status.
func setStatus(now time.Time, gas *v1alpha1.GameAutoscaler, o observed, p plan) {
	s := &gas.Status
	s.ObservedGeneration = gas.Generation
	s.CurrentReplicas, s.DesiredReplicas = o.current, p.desired
	s.KeepAwakeUntil = nil
	if !p.keepAwake.IsZero() {
		s.KeepAwakeUntil = secondsOf(p.keepAwake)
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
}

// setObstacle writes into the status why the target isn't scaled.
func setObstacle(now time.Time, gas *v1alpha1.GameAutoscaler, ob *obstacle.Obstacle) {
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

// refused notes that the API server refuses the change.
func (p *plan) refused(err error) {
	p.able = verdict{metav1.ConditionFalse, reasons.ScaleRefused, "The replicas can't be changed: " + text.Bounded(refusal.Words(err)) + "."}
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

// writeStatus writes what changed, and otherwise returns after how long it may be written. The
// sentences have numbers that change all the time: where nothing else differs they wait for the
// interval.
func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, gas *v1alpha1.GameAutoscaler, m *state) (time.Duration, error) {
	if left := m.wordsWritten.Add(interval(&gas.Spec)).Sub(now); left > 0 && onlyWordsDiffer(&original.Status, &gas.Status) {
		gas.Status = original.Status // nothing of it happened yet
		return left, nil
	}
	written, err := patch.Status(ctx, r.Client, original, gas)
	if written {
		m.wordsWritten = now
	}
	return 0, client.IgnoreNotFound(err)
}

// onlyWordsDiffer reports whether two statuses differ, and only in the sentences.
func onlyWordsDiffer(a, b *v1alpha1.GameAutoscalerStatus) bool {
	return !equality.Semantic.DeepEqual(a, b) && equality.Semantic.DeepEqual(wordless(a), wordless(b))
}

func wordless(s *v1alpha1.GameAutoscalerStatus) *v1alpha1.GameAutoscalerStatus {
	s = s.DeepCopy()
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	for i := range s.Policies {
		s.Policies[i].Message = ""
	}
	return s
}

// secondsOf is a time as a status has it.
func secondsOf(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }
