package target

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Status reads the target's own identity and status.conditions, as far as the
// kind has them where most kinds do.
func (s *Scaler) Status(ctx context.Context, ref Ref) (types.UID, []metav1.Condition, error) {
	u := s.object(ref)
	if err := s.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, u); err != nil {
		return "", nil, explain(ref, "read", err)
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	conditions := make([]metav1.Condition, 0, len(list))
	for _, item := range list {
		var c metav1.Condition
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &c); err != nil {
			return "", nil, fmt.Errorf("decode a condition of %s: %w", ref, err)
		}
		conditions = append(conditions, c)
	}
	return u.GetUID(), conditions, nil
}
