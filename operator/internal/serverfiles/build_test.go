package serverfiles

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

var update = flag.Bool("update", false, "write testdata/*.yaml; read what changed")

func newSidecar() *corev1.PodTemplate {
	return &corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "dormouse-sidecar", Image: "sidecar:1", Command: []string{"/sidecar"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("40Mi")}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}}}}}
}

// newServer has one disk, and a game that says who it is.
func newServer() *v1alpha1.Server {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "server-1"}}
	s.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/data", Size: resource.MustParse("1Gi")}}
	s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game"}}
	s.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), FSGroup: new(int64(2000))}
	s.Spec.Files = &v1alpha1.FilesSpec{Secret: "survival-sftp"}
	return s
}

// golden compares the objects of a Set with a file.
func golden(t *testing.T, name string, set *disks.Set) {
	t.Helper()
	all := build(set, newSidecar())
	var parts []string
	for _, b := range all {
		text, err := yaml.Marshal(b.desired)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(text))
	}
	got := strings.Join(parts, "---\n")
	file := "testdata/" + name + ".yaml"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestWhatServesTheFilesOfAServer(t *testing.T) {
	golden(t, "server", disks.OfServer(newServer()))
}

func TestWhatServesTheFilesOfAServerThatSaysMore(t *testing.T) {
	s := newServer()
	s.Spec.Storage = append(s.Spec.Storage, v1alpha1.StorageSpec{Name: "mods", MountPath: "/mods", Size: resource.MustParse("1Gi")})
	s.Spec.Template.Spec.SecurityContext = nil
	s.Spec.Files = &v1alpha1.FilesSpec{
		Secret: "survival-sftp", AllowCIDRs: []string{"203.0.113.0/24", "2001:db8::/32"}, Quota: new(resource.MustParse("1Gi")),
		IdleTimeout: &metav1.Duration{Duration: time.Hour}, RunAsUser: new(int64(0)), RunAsGroup: new(int64(7)),
		Service: v1alpha1.FilesServiceSpec{
			Type: v1alpha1.GameServiceNodePort, Annotations: map[string]string{"a": "b"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		},
	}
	golden(t, "more", disks.OfServer(s))
}

func TestEachPlaceOfAGameTypeHasItsOwn(t *testing.T) {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "duel", UID: "gt-1"}}
	gt.Spec.Replicas = new(int32(2))
	gt.Spec.Template.Spec, gt.Spec.Files = newServer().Spec, newServer().Spec.Files
	gt.Spec.Template.Spec.Files = nil
	var names []string
	for _, set := range ownerOf(gt).sets {
		all := build(set, newSidecar())
		for _, b := range all {
			names = append(names, b.kind+" "+b.desired.GetName())
			if !metav1.IsControlledBy(b.desired, gt) || !metav1.IsControlledBy(b.begin, gt) || b.begin.GetName() != b.desired.GetName() {
				t.Errorf("%s %s is of %v", b.kind, b.desired.GetName(), b.desired.GetOwnerReferences())
			}
		}
	}
	want := []string{
		"Deployment duel-0-files", "Service duel-0-files", "ElasticService duel-0-files",
		"Deployment duel-1-files", "Service duel-1-files", "ElasticService duel-1-files",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A Deployment without replicas has one.
func TestADeploymentBeginsAtZeroAndIsThenLeftThere(t *testing.T) {
	all := build(disks.OfServer(newServer()), newSidecar())
	begin, desired := all[0].begin.(*appsv1.Deployment), all[0].desired.(*appsv1.Deployment)
	if begin.Spec.Replicas == nil || *begin.Spec.Replicas != 0 || desired.Spec.Replicas != nil {
		t.Errorf("it begins with %v replicas and is to have %v", begin.Spec.Replicas, desired.Spec.Replicas)
	}
	if _, game := desired.Spec.Selector.MatchLabels[wellknown.DisksLabel]; game {
		t.Error("it selects the game's Pod, too")
	}
	if _, game := desired.Spec.Template.Labels[wellknown.ServerLabel]; game {
		t.Error("its Pods count as games")
	}
}

// Without a group of the volumes, the files of the Secret are root's.
func TestTheProgramCanReadItsUsers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.Server)
		mode   int32
	}{
		"with a group": {func(*v1alpha1.Server) {}, 0o440},
		"with none":    {func(s *v1alpha1.Server) { s.Spec.Template.Spec.SecurityContext = nil }, 0o444},
		"with one of spec.files": {func(s *v1alpha1.Server) {
			s.Spec.Template.Spec.SecurityContext, s.Spec.Files.RunAsGroup = nil, new(int64(7))
		}, 0o440},
		"with the game's, not files'": {func(s *v1alpha1.Server) { s.Spec.Files.RunAsGroup = new(int64(7)) }, 0o440},
	} {
		s := newServer()
		c.change(s)
		pod := buildPod(disks.OfServer(s), newSidecar())
		if mode := *pod.Volumes[len(pod.Volumes)-1].Secret.DefaultMode; mode != c.mode {
			t.Errorf("%s: the mode is %o, want %o", name, mode, c.mode)
		}
	}
}

func TestWhoseFilesAnObjectOfANameServes(t *testing.T) {
	for name, want := range map[string]string{
		"duel-0-files": "duel-0 duel", "my-duel-12-files": "my-duel-12 my-duel", "survival-files": "survival ", "survival": " ", "-files": " ", "-3-files": "-3 ",
	} {
		server, ok := serverOf(name)
		if !ok {
			server = ""
		}
		gameType, ok := gameTypeOf(server)
		if !ok {
			gameType = ""
		}
		if got := server + " " + gameType; got != want {
			t.Errorf("%s is of %q, want %q", name, got, want)
		}
	}
}
