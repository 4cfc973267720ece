package target

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Status reads the target's UID and status.conditions, if the kind has them where most kinds
// do. Dormouse's own kinds are watched anyway.
func (s *Scaler) Status(ctx context.Context, ref Ref) (types.UID, []metav1.Condition, error) {
	if ref.HasServers() {
		return s.own(ctx, ref, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	}
	u, err := s.read(ctx, ref)
	if err != nil {
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

func (s *Scaler) own(ctx context.Context, ref Ref, key types.NamespacedName) (types.UID, []metav1.Condition, error) {
	var o client.Object
	var conditions *[]metav1.Condition
	switch ref.Kind {
	case "Server":
		server := &v1alpha1.Server{}
		o, conditions = server, &server.Status.Conditions
	case "Fleet":
		f := &v1alpha1.Fleet{}
		o, conditions = f, &f.Status.Conditions
	default:
		gt := &v1alpha1.GameType{}
		o, conditions = gt, &gt.Status.Conditions
	}
	if err := s.client.Get(ctx, key, o); err != nil {
		return "", nil, explain(ref, "read", err)
	}
	return o.GetUID(), *conditions, nil
}
