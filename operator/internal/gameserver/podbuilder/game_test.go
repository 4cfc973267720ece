package podbuilder

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
)

var withAPI = Sidecar{OperatorURL: sidecar.OperatorURL, APIURL: "http://api", Container: sidecar.Container}

// The game and its sidecar get the code, and nobody else does. Without the annotation the Pod is as it
// would be.
func TestTheGameAndItsSidecarGetTheCode(t *testing.T) {
	t.Parallel()
	s := full()
	s.Spec.Template.Annotations[wellknown.GameAPIAnnotation] = "true" // which asks for nothing
	without := Build(s, withAPI, []int32{7000, 7001, 0}, true)
	want := Build(full(), sidecar, []int32{7000, 7001, 0}, true)
	want.Annotations[wellknown.PodHashAnnotation] = without.Annotations[wellknown.PodHashAnnotation] // of another template
	if !cmp.Equal(want, without) {
		t.Errorf("without the annotation (-want +got):\n%s", cmp.Diff(want, without))
	}
	s.Annotations = map[string]string{wellknown.GameAPIAnnotation: "true"}
	with := Build(s, withAPI, []int32{7000, 7001, 0}, true)

	code := corev1.EnvVar{Name: gameapi.CodeEnv, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: gameapi.SecretName("lobby", full().UID)}, Key: "code",
	}}}
	want = without.DeepCopy()
	want.Annotations[wellknown.GameAPIAnnotation] = "true"
	game, beside := &want.Spec.Containers[1], &want.Spec.InitContainers[0]
	game.Env = append(game.Env, corev1.EnvVar{Name: gameapi.URLEnv, Value: "http://api"}, code)
	beside.Env = append(beside.Env, code)
	if diff := cmp.Diff(want, with); diff != "" {
		t.Errorf("with the annotation (-want +got):\n%s", diff)
	}
}

// What a template sets stays, but nobody gives the sidecar another code.
func TestATemplatesOwnCodeStays(t *testing.T) {
	t.Parallel()
	s := full()
	s.Annotations = map[string]string{wellknown.GameAPIAnnotation: "true"}
	own := []corev1.EnvVar{{Name: gameapi.CodeEnv, Value: "mine"}, {Name: gameapi.URLEnv, Value: "http://mine"}}
	s.Spec.Template.Spec.Containers[1].Env = own
	everyones := withAPI
	everyones.Container.Env = []corev1.EnvVar{{Name: gameapi.CodeEnv, Value: "everyone's"}}
	pod := Build(s, everyones, []int32{7000, 7001, 0}, true)
	for _, e := range own {
		if !slices.Contains(pod.Spec.Containers[1].Env, e) {
			t.Errorf("the game has lost its %s: %+v", e.Name, pod.Spec.Containers[1].Env)
		}
	}
	of := func(c corev1.Container) []corev1.EnvVar {
		return slices.DeleteFunc(slices.Clone(c.Env), func(e corev1.EnvVar) bool { return e.Name != gameapi.CodeEnv })
	}
	if env := of(pod.Spec.InitContainers[0]); len(env) != 1 || env[0].ValueFrom == nil {
		t.Errorf("the sidecar's code is %+v", env)
	}
	delete(s.Annotations, wellknown.GameAPIAnnotation)
	if env := of(Build(s, everyones, []int32{7000, 7001, 0}, true).Spec.InitContainers[0]); len(env) != 0 {
		t.Errorf("the sidecar of a Server without this API has %+v", env)
	}
}
