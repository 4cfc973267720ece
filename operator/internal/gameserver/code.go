package gameserver

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
)

// A game that may call the REST API for itself shows a code, which its sidecar has, too. The operator
// makes it, in a Secret that goes with the Server, and may not read it again.

// hasGameAPI reports whether a Server's game may call the REST API.
func hasGameAPI(s *v1alpha1.Server) bool { return s.Annotations[wellknown.GameAPIAnnotation] == "true" }

// setCode gives a container the code, unless the template has a variable of that name.
func setCode(s *v1alpha1.Server, c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == gameapi.CodeEnv }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: gameapi.CodeEnv, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: gameapi.SecretName(s.Name, s.UID)}, Key: gameapi.SecretKey,
	}}})
}

// keepCode makes the Secret with a Server's code, where it is to have one, and reports whether there
// was none.
func (r *Reconciler) keepCode(ctx context.Context, s *v1alpha1.Server) (made bool, _ error) {
	if !hasGameAPI(s) {
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
	if !hasGameAPI(s) || pod.Annotations[wellknown.GameAPIAnnotation] != "true" {
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
