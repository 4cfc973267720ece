package target

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A GameType from before spec.scale, or one that has just been made, has no number that its scale
// subresource could read until its controller's first pass, and a wake can't wait for that.

func (r Ref) isGameType() bool { return r.is(v1alpha1.GroupVersion.Group, "GameType") }

// getGameType is the scale that a GameType will have then.
func (s *Scaler) getGameType(ctx context.Context, ref Ref) (*autoscalingv1.Scale, error) {
	u, err := s.read(ctx, ref)
	if err != nil {
		return nil, explain(ref, "read", err)
	}
	scale := &autoscalingv1.Scale{}
	scale.Namespace, scale.Name, scale.UID, scale.ResourceVersion = ref.Namespace, ref.Name, u.GetUID(), u.GetResourceVersion()
	wanted, found, err := unstructured.NestedInt64(u.Object, "spec", "scale", "replicas")
	if !found && err == nil {
		wanted, found, err = unstructured.NestedInt64(u.Object, "spec", "replicas")
	}
	if !found && err == nil {
		wanted = 1
	}
	if err != nil {
		return nil, fmt.Errorf("decode the scale of %s: %w", ref, err)
	}
	has, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
	scale.Status.Selector, _, _ = unstructured.NestedString(u.Object, "status", "selector")
	scale.Spec.Replicas, scale.Status.Replicas = int32(wanted), int32(has) //nolint:gosec // the API server bounds both
	return scale, nil
}
