package gameautoscaler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
)

// writeStatus writes what changed, and otherwise returns after how long it may be written. The
// sentences have numbers that change all the time: where nothing else differs they wait for the
// interval.
func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, gas *v1alpha1.GameAutoscaler, m *state) (time.Duration, error) {
	if left := m.wordsWritten.Add(planner.Interval(&gas.Spec)).Sub(now); left > 0 && onlyWordsDiffer(&original.Status, &gas.Status) {
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
