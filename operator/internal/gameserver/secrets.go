package gameserver

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/reportkeys"
)

// Pods have Secrets: the keys with which sidecars sign their reports, see Keys, and the codes with which
// games may call the REST API. The operator makes a code in a Secret that goes with the Server, and may
// not read it again.

// keepCode makes the Secret with a Server's code, and reports whether there was none.
func (r *Reconciler) keepCode(ctx context.Context, s *v1alpha1.Server) (made bool, _ error) {
	err := r.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: gameapi.SecretName(s.Name, s.UID), Labels: map[string]string{managedByLabel: wellknown.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server"))},
		},
		Immutable: new(true),
		Data:      map[string][]byte{gameapi.SecretKey: []byte(gameapi.NewCode(s.Namespace, s.Name))},
	})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, wrapf(err, "create Secret %s/%s, with the code of the game, which the annotation %s asks for",
		s.Namespace, gameapi.SecretName(s.Name, s.UID), wellknown.GameAPIAnnotation)
}

// restoreCode makes the Secret again if somebody deleted it. It reports whether the Pod's sidecar
// still has the code before, so that the game, which doesn't run, needs another Pod.
func (r *Reconciler) restoreCode(ctx context.Context, s *v1alpha1.Server, pod *corev1.Pod) (replace bool) {
	made, err := r.keepCode(ctx, s)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The Pod waits for its code", "why", err.Error())
		return false
	}
	sidecar := gamepod.SidecarStatus(pod)
	return made && sidecar != nil && sidecar.State.Running != nil && !gamepod.Running(s, pod)
}

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
