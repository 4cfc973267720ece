package gameserver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
)

// codeOf is whence a container has its code.
func codeOf(c *corev1.Container) *corev1.SecretKeySelector {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == gameapi.CodeEnv })
	if i < 0 || c.Env[i].ValueFrom == nil {
		return nil
	}
	return c.Env[i].ValueFrom.SecretKeyRef
}

// A Server that asks for it has a Secret of its own with a code before its Pod, whose game and sidecar
// refer to it. One that was deleted is made again once the Pod waits for it. Another Server has none.
func TestAServersGameHasACode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby.eu", func(s *v1alpha1.Server) {
		s.Annotations = map[string]string{wellknown.GameAPIAnnotation: "true"}
	})
	key := client.ObjectKey{Namespace: w.ns, Name: gameapi.SecretName("lobby.eu", g.server(t.Context()).UID)}
	containers := slices.Concat(g.pod.Spec.InitContainers, g.pod.Spec.Containers)
	for _, name := range []string{"game", wellknown.SidecarContainer} {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
		if ref := codeOf(&containers[i]); ref == nil || ref.Name != key.Name || ref.Key != gameapi.SecretKey {
			t.Errorf("%s has its code from %+v", name, ref)
		}
	}
	secret := &corev1.Secret{}
	check := func(ctx context.Context) error {
		if err := w.c.Get(ctx, key, secret); err != nil {
			return err
		}
		namespace, name, ok := gameapi.Server(string(secret.Data[gameapi.SecretKey]))
		if !ok || namespace != w.ns || name != g.name || !metav1.IsControlledBy(secret, g.server(ctx)) {
			return fmt.Errorf("its code is of %q, %q, and it has %+v", namespace, name, secret.OwnerReferences)
		}
		return nil
	}
	if err := check(t.Context()); err != nil {
		t.Fatalf("the Pod is there, and its Secret isn't: %v", err)
	}
	if secret.CreationTimestamp.After(g.pod.CreationTimestamp.Time) {
		t.Error("the Secret is younger than the Pod")
	}

	if err := w.c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	original := g.pod.DeepCopy()
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}}
	g.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: waits}}
	if err := w.c.Status().Patch(t.Context(), g.pod, client.MergeFrom(original)); err != nil {
		t.Fatal(err)
	}
	w.eventually("its Secret is there again", check)

	plain := w.game("plain")
	for _, c := range slices.Concat(plain.pod.Spec.InitContainers, plain.pod.Spec.Containers) {
		if ref := codeOf(&c); ref != nil {
			t.Errorf("%s of a Server that doesn't ask has a code from %+v", c.Name, ref)
		}
	}
	err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: gameapi.SecretName("plain", plain.server(t.Context()).UID)}, secret)
	if !apierrors.IsNotFound(err) {
		t.Errorf("a Server that doesn't ask has a Secret: %v", err)
	}
}
