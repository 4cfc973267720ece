package gametype

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/index"
)

// scaleOf is how many Servers there are to be now. Sleep, wake and autoscalers change it, and a
// change of spec.replicas does; but the number of a sleeping game may change without waking it.
// Only where spec.replicas itself was 0 does another number mean that the game is to run. See
// autoscaled for a GameType that a GameAutoscaler scales.
func scaleOf(spec *v1alpha1.GameTypeSpec) v1alpha1.GameTypeScale {
	awake := ptr.Deref(spec.Replicas, 1)
	scale := v1alpha1.GameTypeScale{Replicas: awake, Of: &awake}
	if s := spec.Scale; s != nil && (s.Of == nil || *s.Of == awake || s.Replicas == 0 && *s.Of > 0 && awake > 0) {
		scale.Replicas = s.Replicas
	}
	return scale
}

// autoscaled is a scale of a GameType that a GameAutoscaler scales: what that set stays, within the
// bounds of its behavior, while the game is awake. Another spec.replicas is for the next wake.
func autoscaled(spec *v1alpha1.GameTypeSpec, scale v1alpha1.GameTypeScale) v1alpha1.GameTypeScale {
	if s := spec.Scale; s != nil && s.Replicas > 0 && *scale.Of > 0 {
		scale.Replicas = s.Replicas
	}
	return scale
}

// followReplicas brings the scale to what spec.replicas asks for, where it is of another number.
func (r *Reconciler) followReplicas(ctx context.Context, gt *v1alpha1.GameType) error {
	scale := scaleOf(&gt.Spec)
	gas, err := index.AutoscalerOf(ctx, r.Client, gt.Namespace, kind.Kind, gt.Name)
	if err != nil {
		return err
	}
	if gas != nil {
		scale = autoscaled(&gt.Spec, scale)
	}
	return r.setScale(ctx, gt, scale)
}

// setScale writes the scale.
func (r *Reconciler) setScale(ctx context.Context, gt *v1alpha1.GameType, scale v1alpha1.GameTypeScale) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": gt.UID, "resourceVersion": gt.ResourceVersion},
		"spec":     map[string]any{"scale": scale},
	})
	if err == nil {
		err = r.Client.Patch(ctx, gt, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil {
		return fmt.Errorf("set spec.scale of GameType %s: %w", client.ObjectKeyFromObject(gt), err)
	}
	return nil
}
