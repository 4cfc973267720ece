package index

import (
	"cmp"
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// AutoscalerTarget finds GameAutoscalers by kind/name of their target.
const AutoscalerTarget = "spec.targetRef"

func autoscalerTarget(o client.Object) []string {
	gas, ok := o.(*v1alpha1.GameAutoscaler)
	if !ok {
		return nil
	}
	return []string{AutoscalerTargetOf(gas)}
}

// AutoscalerTargetOf is kind/name of a GameAutoscaler's target.
func AutoscalerTargetOf(gas *v1alpha1.GameAutoscaler) string {
	of := gas.Spec.TargetRef
	return string(cmp.Or(of.Kind, v1alpha1.AutoscalerTargetGameType)) + "/" + of.Name
}

// AutoscalersOf finds the GameAutoscalers of a target. They are the cache's own and must not be
// changed.
func AutoscalersOf(ctx context.Context, cached client.Reader, namespace, kind, name string) ([]v1alpha1.GameAutoscaler, error) {
	var list v1alpha1.GameAutoscalerList
	err := cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{AutoscalerTarget: kind + "/" + name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the GameAutoscalers of %s %s/%s: %w", kind, namespace, name, err)
	}
	return list.Items, nil
}

// AutoscalerOf finds the GameAutoscaler that scales a target: the oldest that isn't being
// deleted; nil: there is none.
func AutoscalerOf(ctx context.Context, cached client.Reader, namespace, kind, name string) (*v1alpha1.GameAutoscaler, error) {
	all, err := AutoscalersOf(ctx, cached, namespace, kind, name)
	var oldest *v1alpha1.GameAutoscaler
	for i := range all {
		gas := &all[i]
		if gas.DeletionTimestamp.IsZero() && (oldest == nil || olderObject(gas, oldest)) {
			oldest = gas
		}
	}
	return oldest, err
}

// olderObject reports whether a is older than b. Ties within a second are broken, too.
func olderObject(a, b client.Object) bool { return byAge(a, b) < 0 }

// byAge orders objects, the oldest first.
func byAge[T client.Object](a, b T) int {
	if order := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); order != 0 {
		return order
	}
	return cmp.Compare(a.GetUID(), b.GetUID())
}
