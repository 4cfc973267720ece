package podbuilder

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// A sidecar that can sign has its key from a Secret, which no other container sees, and no volume.
func TestASidecarThatSignsHasNoVolume(t *testing.T) {
	t.Parallel()
	s := full()
	s.Spec.Storage = nil
	s.Spec.Template.Annotations[wellknown.ReportKeyAnnotation] = "forged"
	signs := sidecar
	signs.ReportKey = "abc"
	pod := Build(s, signs, []int32{7000, 7001, 0}, true)
	if len(pod.Spec.Volumes) > 0 || len(pod.Spec.InitContainers[0].VolumeMounts) > 0 {
		t.Errorf("the Pod has the volumes %+v", pod.Spec.Volumes)
	}
	if got := pod.Annotations[wellknown.ReportKeyAnnotation]; got != "abc" {
		t.Errorf("the Pod names key %q, want abc", got)
	}
	beside := pod.Spec.InitContainers[0]
	if !slices.Contains(beside.Args, "--report-key-id=abc") || slices.ContainsFunc(beside.Args, func(arg string) bool { return arg == "--token-file="+tokenDir+"/token" }) {
		t.Errorf("the sidecar's arguments are %v", beside.Args)
	}
	want := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "dormouse-report-key-abc"}, Key: "key"}}
	i := slices.IndexFunc(beside.Env, func(e corev1.EnvVar) bool { return e.Name == wellknown.ReportKeyEnv })
	if i < 0 || !cmp.Equal(beside.Env[i].ValueFrom, want) {
		t.Errorf("the sidecar's environment is %+v", beside.Env)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers[1:], pod.Spec.Containers) {
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }) {
			t.Errorf("container %s has the key, too", c.Name)
		}
	}
	// Without a key a template's annotation counts for nothing.
	if pod := Build(s, sidecar, []int32{7000, 7001, 0}, true); pod.Annotations[wellknown.ReportKeyAnnotation] != "" || len(pod.Spec.Volumes) != 1 {
		t.Errorf("without a key the Pod names key %q and has %d volumes", pod.Annotations[wellknown.ReportKeyAnnotation], len(pod.Spec.Volumes))
	}
}

func TestSidecarStandsBesideTheGame(t *testing.T) {
	pod := Build(full(), sidecar, []int32{7000, 7001, 0}, true)
	first := pod.Spec.InitContainers[0]
	if first.Name != wellknown.SidecarContainer || *first.RestartPolicy != corev1.ContainerRestartPolicyAlways || first.Image != "sidecar:1" || len(pod.Spec.InitContainers) != 2 {
		t.Errorf("the init containers are %+v; want the sidecar first, which always restarts", pod.Spec.InitContainers)
	}
	want := []string{
		"--operator=http://operator:8080", "--grpc-port=9357", "--http-port=9358", "--listen=:9359",
		"--readiness=Auto", "--unreported=Allowed", "--health-initial-delay=1m0s", "--health-period=5s", "--health-failure-threshold=4", "--capacity=16", "--probe=source:7000",
		"--token-file=/var/run/secrets/dormouse.dev/token",
	}
	if diff := cmp.Diff(want, first.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// Behind the game the sidecar doesn't let it wait. What it takes it has to be before the game for is
// a Pod that would not end otherwise, or whose sockets it could not tell apart.
func TestTheGameNeedNotWaitForItsSidecar(t *testing.T) {
	always := new(corev1.ContainerRestartPolicyAlways)
	for name, c := range map[string]struct {
		before bool
		change func(*v1alpha1.Server, *Sidecar)
	}{
		"as it is shipped":                  {false, func(*v1alpha1.Server, *Sidecar) {}},
		"that restarts always":              {false, func(s *v1alpha1.Server, _ *Sidecar) { s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways }},
		"of an earlier version":             {true, func(_ *v1alpha1.Server, c *Sidecar) { c.AfterGame = false }},
		"of a game with a port on its node": {true, func(s *v1alpha1.Server, _ *Sidecar) { s.Spec.Ports[1].Expose = v1alpha1.ExposeHostPort }},
		"of a game that awaits it":          {true, func(s *v1alpha1.Server, _ *Sidecar) { s.Spec.Readiness = v1alpha1.ServerReadinessSDK }},
		"that a hook may await": {true, func(s *v1alpha1.Server, _ *Sidecar) {
			s.Spec.Template.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}}
		}},
		"of a game that ends": {true, func(s *v1alpha1.Server, _ *Sidecar) { s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever }},
		"of a game that may end": {true, func(s *v1alpha1.Server, _ *Sidecar) {
			s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}},
		"on the node's network":         {true, func(s *v1alpha1.Server, _ *Sidecar) { s.Spec.Template.Spec.HostNetwork = true }},
		"beside a sidecar of the users": {true, func(s *v1alpha1.Server, _ *Sidecar) { s.Spec.Template.Spec.InitContainers[0].RestartPolicy = always }},
	} {
		t.Run("a sidecar "+name, func(t *testing.T) {
			s, beside := full(), sidecar
			beside.AfterGame = true
			s.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9899, Protocol: corev1.ProtocolSCTP}}
			s.Spec.Ports[0].ContainerPort = 7000
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].Expose = v1alpha1.ExposeNone
			}
			c.change(s, &beside)
			spec := Build(s, beside, []int32{0, 0, 0}, true).Spec
			in, among, names := spec.Containers[len(spec.Containers)-1], len(spec.Containers), 3
			if c.before {
				in, among, names = spec.InitContainers[0], len(spec.InitContainers), 2
			}
			if in.Name != wellknown.SidecarContainer || among != names || len(spec.Containers)+len(spec.InitContainers) != 4 {
				t.Fatalf("the init containers are %+v, the others %+v", spec.InitContainers, spec.Containers)
			}
			outlives := []string{"--outlive-game", "--game-ports=7778/TCP,7000/TCP,7000/UDP,7778/UDP,80/TCP"}
			if c.before {
				if slices.Contains(in.Args, outlives[0]) || in.RestartPolicy == nil || *in.RestartPolicy != *always {
					t.Errorf("the sidecar restarts %v, with %v; kubelet lets it outlive the game", in.RestartPolicy, in.Args)
				}
			} else if diff := cmp.Diff(outlives, in.Args[len(in.Args)-2:]); diff != "" || in.RestartPolicy != nil {
				t.Errorf("the sidecar restarts %v, arguments (-want +got):\n%s", in.RestartPolicy, diff)
			}
		})
	}
}

// A game that isn't said how to ask is asked in the protocol that one of its ports speaks.
func TestAGameIsAskedInItsOwnProtocol(t *testing.T) {
	ports := []v1alpha1.ServerPort{
		{Name: "rcon", ContainerPort: 25575, Protocol: v1alpha1.ServerProtocolTCP},
		{Name: "game", ContainerPort: 25565, Protocol: "minecraft"},
		{Name: "web", ContainerPort: 80, Protocol: "http"},
	}
	tests := map[string]struct {
		players *v1alpha1.PlayersSpec
		ports   []v1alpha1.ServerPort
		want    string
	}{
		"nothing is said":         {ports: ports, want: "--probe=minecraft:25565"},
		"only the capacity":       {players: &v1alpha1.PlayersSpec{Capacity: 3}, ports: ports, want: "--probe=minecraft:25565"},
		"another way":             {players: &v1alpha1.PlayersSpec{Probe: &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeSource}}, ports: ports, want: "--probe=source:25575"},
		"it doesn't answer":       {players: &v1alpha1.PlayersSpec{Probe: &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeNone}}, ports: ports},
		"no port speaks a game's": {ports: []v1alpha1.ServerPort{ports[0], ports[2]}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.Server{Spec: v1alpha1.ServerSpec{Players: test.players, Ports: test.ports}}
			var got string
			for _, arg := range buildSidecar(s, Sidecar{}, make([]int32, len(test.ports))).Args {
				if strings.HasPrefix(arg, "--probe=") {
					got = arg
				}
			}
			if got != test.want {
				t.Errorf("the sidecar gets %q, want %q", got, test.want)
			}
		})
	}
}

// Only the sidecar gets a token, unless the template's owner asks for one.
func TestGamesGetNoToken(t *testing.T) {
	s := full()
	pod := Build(s, sidecar, []int32{7000, 7001, 0}, true)
	if ptr.Deref(pod.Spec.AutomountServiceAccountToken, true) {
		t.Error("the service account's token is mounted everywhere")
	}
	for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers[1:]...) {
		for _, m := range c.VolumeMounts {
			if m.Name == volumeName {
				t.Errorf("container %s has the sidecar's token", c.Name)
			}
		}
	}
	s.Spec.Template.Spec.AutomountServiceAccountToken = new(true)
	if pod := Build(s, sidecar, []int32{7000, 7001, 0}, true); !*pod.Spec.AutomountServiceAccountToken {
		t.Error("what the template says is overruled")
	}
}
