package manifests_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// insecure are single settings, each of which Pod Security's level restricted
// refuses.
var insecure = map[string]func(*corev1.PodSpec){
	"may run as root": func(s *corev1.PodSpec) {
		s.SecurityContext.RunAsNonRoot, s.Containers[0].SecurityContext.RunAsNonRoot = nil, nil
	},
	"has no seccomp profile": func(s *corev1.PodSpec) {
		s.SecurityContext.SeccompProfile, s.Containers[0].SecurityContext.SeccompProfile = nil, nil
	},
	"may gain privileges":              func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
	"keeps capabilities":               func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
	"is in the node's network":         func(s *corev1.PodSpec) { s.HostNetwork = true },
	"has a directory of the node":      func(s *corev1.PodSpec) { s.Volumes = append(s.Volumes, hostPath) },
	"has a container without settings": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = nil },
}

var hostPath = corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}

// TestPodSecurityRestrictedAdmitsEveryPod makes the pods of all that makes pods in
// a namespace that enforces the level restricted, as a dry run. What makes them is
// admitted itself whatever its pods are.
func TestPodSecurityRestrictedAdmitsEveryPod(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "restricted-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := c.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{
		"default": fixture.Path("config", "default"), "dev": fixture.Path("config", "dev"), "samples": fixture.Path("config", "samples"),
	}
	for _, component := range components(t) {
		dirs[filepath.Base(component)] = withComponent(t, component)
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			pods := podsOf(t, ns.Name, build(t, dir))
			if len(pods) < 2 {
				t.Fatalf("%d pods, want two at least", len(pods))
			}
			for _, pod := range pods {
				if err := c.Create(ctx, pod.DeepCopy(), client.DryRunAll); err != nil {
					t.Errorf("a pod of %s is refused: %v", pod.Name, err)
				}
				for what, change := range insecure {
					changed := pod.DeepCopy()
					change(&changed.Spec)
					err := c.Create(ctx, changed, client.DryRunAll)
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity") {
						t.Errorf("a pod of %s that %s: %v, want it refused", pod.Name, what, err)
					}
				}
			}
		})
	}
}

// TestTheSystemNamespaceEnforcesRestricted is so that the test above says
// something about where the programs really run.
func TestTheSystemNamespaceEnforcesRestricted(t *testing.T) {
	for _, o := range build(t, fixture.Path("config", "default")) {
		if o.GetKind() == "Namespace" && o.GetName() == systemNamespace && o.GetLabels()["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Errorf("namespace %s has labels %v", o.GetName(), o.GetLabels())
		}
	}
}

// podsOf are pods as the Deployments, Servers and Fleets among objects make them,
// in a namespace, and one with the sidecar of a PodTemplate alone: what a game's
// own settings are is not for it to rely on.
func podsOf(t *testing.T, namespace string, objects []*unstructured.Unstructured) []*corev1.Pod {
	t.Helper()
	var pods []*corev1.Pod
	for _, o := range objects {
		var template corev1.PodTemplateSpec
		switch o.GetKind() {
		case "Deployment":
			template = read[appsv1.Deployment](t, o).Spec.Template
		case "PodTemplate":
			template.Spec.Containers = read[corev1.PodTemplate](t, o).Template.Spec.Containers
		case "Server":
			template = read[v1alpha1.Server](t, o).Spec.Template
		case "Fleet":
			template = read[v1alpha1.Fleet](t, o).Spec.Template.Spec.Template
		default:
			continue
		}
		if template.Spec.SecurityContext == nil {
			template.Spec.SecurityContext = &corev1.PodSecurityContext{}
		}
		pods = append(pods, &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.GetName(), Labels: template.Labels},
			Spec:       template.Spec,
		})
	}
	return pods
}

func read[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &into); err != nil {
		t.Fatalf("read %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return into
}
