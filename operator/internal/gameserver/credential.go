package gameserver

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/reportkeys"
)

// restoreRetry is when to look again whether a Pod still waits for its key.
const restoreRetry = time.Minute

// configError is kubelet's reason for a container that lacks a Secret of its environment.
const configError = "CreateContainerConfigError"

// reportKey is the ID of the key for a new Pod; empty: its sidecar can't sign, or its namespace has
// no Secret with the key.
func (r *Reconciler) reportKey(ctx context.Context, s *v1alpha1.Server, t *corev1.PodTemplate) string {
	if r.Keys == nil || t.Template.Annotations[wellknown.ReportCredentialAnnotation] != wellknown.ReportCredentialKey {
		return ""
	}
	id, err := r.Keys.Provide(ctx, s.Namespace)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The sidecar gets a token in a volume, which lets the game start later", "why", err.Error())
	}
	return id
}

// lacksKey is the ID of the key whose Secret a Pod waits for; empty: it waits for none.
func lacksKey(pod *corev1.Pod) string {
	if c := gamepod.SidecarStatus(pod); c != nil && c.State.Waiting != nil && c.State.Waiting.Reason == configError {
		return pod.Annotations[wellknown.ReportKeyAnnotation]
	}
	return ""
}

// restoreKey makes the Secret with a key again, and reports whether it can't be made.
func (r *Reconciler) restoreKey(ctx context.Context, s *v1alpha1.Server, id string) (never bool) {
	if r.Keys == nil {
		return false
	}
	err := r.Keys.Restore(ctx, s.Namespace, id)
	if err == nil {
		return false
	}
	ctrl.LoggerFrom(ctx).Info("The sidecar waits for its key", "why", err.Error())
	return refusal.Is(err) || errors.Is(err, reportkeys.ErrUnknown)
}
