package gameserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// The operator makes the code with which a game may call the REST API, in a Secret that goes with the
// Server, and may not read it again.

// keepCode makes the Secret with a Server's code, where it is to have one, and reports whether there
// was none.
func (r *Reconciler) keepCode(ctx context.Context, s *v1alpha1.Server) (made bool, _ error) {
	if !podbuilder.HasGameAPI(s) {
		return false, nil
	}
	err := r.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: gameapi.SecretName(s.Name, s.UID), Labels: map[string]string{ManagedByLabel: wellknown.ManagedBy},
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

// lacksCode reports whether a Pod may wait for the Secret with its code.
func lacksCode(s *v1alpha1.Server, pod *corev1.Pod) bool {
	if !podbuilder.HasGameAPI(s) || pod.Annotations[wellknown.GameAPIAnnotation] != "true" {
		return false
	}
	return waitsForConfig(gamepod.SidecarStatus(pod)) || waitsForConfig(gamepod.Status(s, pod))
}

func waitsForConfig(c *corev1.ContainerStatus) bool {
	return c != nil && c.State.Waiting != nil && c.State.Waiting.Reason == configError
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
