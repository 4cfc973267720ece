package images_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"dormouse.dev/dormouse/internal/images"
	"dormouse.dev/dormouse/internal/manifests"
)

const repo = "../.."

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
	deployments := map[string]appsv1.Deployment{}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &d, true); err != nil {
			t.Fatalf("read deployment %s: %v", object.GetName(), err)
		}
		deployments[d.Name] = d
	}
	for _, p := range released() {
		t.Run(p.Name, func(t *testing.T) {
			spec := specOf(t, p)
			d, ok := deployments[p.Image]
			if !ok {
				t.Fatalf("config/dev has no deployment %s", p.Image)
			}
			pod := d.Spec.Template.Spec
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
			checkUser(t, spec.User, pod.SecurityContext)
			checkRestricted(t, pod, container)
		})
	}
}

func checkUser(t *testing.T, user string, security *corev1.PodSecurityContext) {
	t.Helper()
	if security == nil || security.RunAsUser == nil || security.RunAsGroup == nil {
		t.Fatal("the pod has no user")
	}
	if user != "65532:65532" || *security.RunAsUser != 65532 || *security.RunAsGroup != 65532 {
		t.Errorf("runs as %d:%d, our image as %s", *security.RunAsUser, *security.RunAsGroup, user)
	}
}

func checkRestricted(t *testing.T, pod corev1.PodSpec, container corev1.Container) {
	t.Helper()
	security := container.SecurityContext
	if security == nil || security.Capabilities == nil {
		t.Fatal("the container has no security context")
	}
	for name, ok := range map[string]bool{
		"runAsNonRoot":             pod.SecurityContext.RunAsNonRoot != nil && *pod.SecurityContext.RunAsNonRoot,
		"seccomp RuntimeDefault":   pod.SecurityContext.SeccompProfile != nil && pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"read-only root":           security.ReadOnlyRootFilesystem != nil && *security.ReadOnlyRootFilesystem,
		"no privilege escalation":  security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
		"no capabilities":          slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(security.Capabilities.Add) == 0,
		"liveness probe":           container.LivenessProbe != nil && container.LivenessProbe.HTTPGet != nil,
		"readiness probe":          container.ReadinessProbe != nil && container.ReadinessProbe.HTTPGet != nil,
		"requests of cpu":          !container.Resources.Requests.Cpu().IsZero(),
		"requests of memory":       !container.Resources.Requests.Memory().IsZero(),
		"a limit of memory":        !container.Resources.Limits.Memory().IsZero(),
		"no network of the node's": !pod.HostNetwork && !pod.HostPID && !pod.HostIPC,
	} {
		if !ok {
			t.Errorf("missing: %s", name)
		}
	}
}
