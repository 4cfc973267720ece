package images_test

import (
	gocmp "cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/internal/dev/manifests"
)

const repo = "../../.."

func released() []images.Program {
	return slices.DeleteFunc(images.Programs(), func(p images.Program) bool { return p.Dockerfile == "" })
}

// specOf is the program's image around a binary that stands in for it.
func specOf(t *testing.T, p images.Program) images.Spec {
	t.Helper()
	binary := filepath.Join(t.TempDir(), p.Name)
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return p.Spec(p.Ref("", images.DevTag), binary)
}

func TestDockerfilesBuildWhatWeBuild(t *testing.T) {
	for _, p := range released() {
		t.Run(p.Name, func(t *testing.T) {
			spec := specOf(t, p)
			d := readDockerfile(t, filepath.Join(repo, p.Dockerfile))
			if len(d.stages) != 2 {
				t.Fatalf("%d stages, want 2", len(d.stages))
			}
			build, final := d.stages[0], d.stages[1]
			for _, s := range d.stages {
				arg := strings.TrimSuffix(strings.TrimPrefix(s.from, "${"), "}")
				if d.args[arg] == "" {
					t.Errorf("base image %s is not a build argument with a default", s.from)
				}
			}
			if base := d.args["BASE_IMAGE"]; !strings.Contains(base, "distroless/static") || !strings.HasSuffix(base, ":nonroot") {
				t.Errorf("base image %s, want distroless static nonroot", base)
			}
			binary := "/" + p.Name
			if diff := cmp.Diff(map[string]string{binary: build.name + ":" + binary}, final.copied); diff != "" {
				t.Errorf("copied files (-want +got):\n%s", diff)
			}
			if _, ok := spec.Files[binary]; !ok {
				t.Errorf("our image has no %s", binary)
			}
			if diff := cmp.Diff(spec.Entrypoint, final.entrypoint); diff != "" {
				t.Errorf("entrypoint (-ours +Dockerfile's):\n%s", diff)
			}
			if final.user != spec.User {
				t.Errorf("user %s, ours is %s", final.user, spec.User)
			}
			command := build.run[len(build.run)-1]
			for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "-o " + binary + " " + p.Package} {
				if !strings.Contains(command, want) {
					t.Errorf("build command %q has no %q", command, want)
				}
			}
		})
	}
}

func TestManifestsRunWhatWeBuild(t *testing.T) {
	objects, err := manifests.Build(filepath.Join(repo, "config", "dev"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var deployments, templates []string
	for _, p := range released() {
		t.Run(p.Name, func(t *testing.T) {
			spec := specOf(t, p)
			pod, kind := podOf(t, objects, p.Image)
			if len(pod.Containers) != 1 {
				t.Fatalf("%d containers, want 1", len(pod.Containers))
			}
			container := pod.Containers[0]
			if container.Image != spec.Ref {
				t.Errorf("image %s, ours is %s", container.Image, spec.Ref)
			}
			if container.ImagePullPolicy != corev1.PullIfNotPresent {
				t.Errorf("pull policy %s; there is no registry to pull from", container.ImagePullPolicy)
			}
			if diff := cmp.Diff(spec.Entrypoint, container.Command); diff != "" {
				t.Errorf("command (-ours +manifest's):\n%s", diff)
			}
			switch kind {
			case "Deployment":
				deployments = append(deployments, p.Name)
				checkProbed(t, pod, container)
			case "PodTemplate":
				templates = append(templates, p.Name)
				// The operator takes the container, and nothing else of it.
				if diff := cmp.Diff(corev1.PodSpec{Containers: []corev1.Container{container}}, pod); diff != "" {
					t.Errorf("what is beside the container is nobody's (-want +got):\n%s", diff)
				}
			}
			security := effective(pod.SecurityContext, container.SecurityContext)
			checkUser(t, spec.User, security)
			checkRestricted(t, security, container)
		})
	}
	if diff := cmp.Diff([]string{"operator", "resolver"}, deployments); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"sidecar"}, templates); diff != "" {
		t.Errorf("PodTemplates (-want +got):\n%s", diff)
	}
}

// podOf is the pod that a Deployment or a PodTemplate of a name makes, and which
// of the two it is.
func podOf(t *testing.T, objects []*unstructured.Unstructured, name string) (corev1.PodSpec, string) {
	t.Helper()
	for _, object := range objects {
		var d appsv1.Deployment
		var p corev1.PodTemplate
		var into any
		switch object.GetKind() {
		case "Deployment":
			into = &d
		case "PodTemplate":
			into = &p
		}
		if into == nil || object.GetName() != name {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true); err != nil {
			t.Fatalf("read %s %s: %v", object.GetKind(), name, err)
		}
		if object.GetKind() == "Deployment" {
			return d.Spec.Template.Spec, "Deployment"
		}
		return p.Template.Spec, "PodTemplate"
	}
	t.Fatalf("config/dev has neither a Deployment nor a PodTemplate %s", name)
	return corev1.PodSpec{}, ""
}

// effective is what holds for a container: its own settings, and the pod's where
// it has none.
func effective(pod *corev1.PodSecurityContext, container *corev1.SecurityContext) corev1.SecurityContext {
	var s corev1.SecurityContext
	if container != nil {
		s = *container
	}
	if pod != nil {
		s.RunAsUser = gocmp.Or(s.RunAsUser, pod.RunAsUser)
		s.RunAsGroup = gocmp.Or(s.RunAsGroup, pod.RunAsGroup)
		s.RunAsNonRoot = gocmp.Or(s.RunAsNonRoot, pod.RunAsNonRoot)
		s.SeccompProfile = gocmp.Or(s.SeccompProfile, pod.SeccompProfile)
	}
	return s
}

func checkUser(t *testing.T, user string, security corev1.SecurityContext) {
	t.Helper()
	if security.RunAsUser == nil || security.RunAsGroup == nil {
		t.Fatal("it has no user")
	}
	if user != "65532:65532" || *security.RunAsUser != 65532 || *security.RunAsGroup != 65532 {
		t.Errorf("runs as %d:%d, our image as %s", *security.RunAsUser, *security.RunAsGroup, user)
	}
}

func checkRestricted(t *testing.T, security corev1.SecurityContext, container corev1.Container) {
	t.Helper()
	missing(t, map[string]bool{
		"runAsNonRoot":            ptr.Deref(security.RunAsNonRoot, false),
		"seccomp RuntimeDefault":  security.SeccompProfile != nil && security.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"read-only root":          ptr.Deref(security.ReadOnlyRootFilesystem, false),
		"no privilege escalation": !ptr.Deref(security.AllowPrivilegeEscalation, true),
		"not privileged":          !ptr.Deref(security.Privileged, false),
		"no capabilities": security.Capabilities != nil && len(security.Capabilities.Add) == 0 &&
			slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"requests of cpu":    !container.Resources.Requests.Cpu().IsZero(),
		"requests of memory": !container.Resources.Requests.Memory().IsZero(),
		"a limit of memory":  !container.Resources.Limits.Memory().IsZero(),
	})
}

// checkProbed is for what runs as config/ says. The sidecar's probes are the
// operator's to add.
func checkProbed(t *testing.T, pod corev1.PodSpec, container corev1.Container) {
	t.Helper()
	missing(t, map[string]bool{
		"liveness probe":           container.LivenessProbe != nil && container.LivenessProbe.HTTPGet != nil,
		"readiness probe":          container.ReadinessProbe != nil && container.ReadinessProbe.HTTPGet != nil,
		"no network of the node's": !pod.HostNetwork && !pod.HostPID && !pod.HostIPC,
	})
}

func missing(t *testing.T, wanted map[string]bool) {
	t.Helper()
	for name, ok := range wanted {
		if !ok {
			t.Errorf("missing: %s", name)
		}
	}
}
