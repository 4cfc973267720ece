package gameserver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// full is a Server with everything that a Pod may show.
func full() *v1alpha1.Server {
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "server", Labels: map[string]string{wellknown.FleetLabel: "lobbies"}},
		Spec: v1alpha1.ServerSpec{
			GameContainer: "game",
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "red"}, Annotations: map[string]string{"note": "x"}},
				Spec: corev1.PodSpec{
					InitContainers: []corev1.Container{{Name: "fetch"}},
					Containers: []corev1.Container{
						{Name: "logs"},
						{
							Name: "game", Image: "game:1",
							Env:   []corev1.EnvVar{{Name: "SERVER_NAME", Value: "mine"}},
							Ports: []corev1.ContainerPort{{Name: "own", ContainerPort: 7778, Protocol: corev1.ProtocolTCP}},
						},
					},
				},
			},
			Ports: []v1alpha1.ServerPort{
				{Name: "game", Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposePassthrough},
				{Name: "query-of-a-game", ContainerPort: 7778, Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposeHostPort},
				{Name: "inner", ContainerPort: 80},
			},
			Players: &v1alpha1.PlayersSpec{Capacity: 16, Probe: &v1alpha1.PlayersProbe{Type: v1alpha1.ProbeSource}},
			Health:  v1alpha1.HealthSpec{InitialDelay: &metav1.Duration{Duration: time.Minute}, FailureThreshold: 4},
			Storage: []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi")}},
		},
	}
}

var sidecar = Sidecar{OperatorURL: "http://operator:8080", Container: corev1.Container{Name: "any", Image: "sidecar:1"}}

func TestPodHasWhatTheGameNeeds(t *testing.T) {
	pod := buildPod(full(), sidecar, []int32{7000, 7001, 0}, true)
	game := pod.Spec.Containers[1]
	want := []corev1.EnvVar{
		{Name: "SERVER_NAME", Value: "mine"}, // the template's own stays
		{Name: "SERVER_NAMESPACE", Value: "games"},
		{Name: "AGONES_SDK_GRPC_PORT", Value: "9357"},
		{Name: "AGONES_SDK_HTTP_PORT", Value: "9358"},
		{Name: "SERVER_PORT_GAME", Value: "7000"},
		{Name: "SERVER_PORT_QUERY_OF_A_GAME", Value: "7778"},
		{Name: "SERVER_PORT_INNER", Value: "80"},
	}
	if diff := cmp.Diff(want, game.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	wantPorts := []corev1.ContainerPort{
		{Name: "own", ContainerPort: 7778, HostPort: 7001, Protocol: corev1.ProtocolTCP},
		{Name: "game", ContainerPort: 7000, HostPort: 7000, Protocol: corev1.ProtocolTCP},
		{Name: "game-udp", ContainerPort: 7000, HostPort: 7000, Protocol: corev1.ProtocolUDP},
		{Name: "query-of-a-udp", ContainerPort: 7778, HostPort: 7001, Protocol: corev1.ProtocolUDP},
		{Name: "inner", ContainerPort: 80, Protocol: corev1.ProtocolTCP},
	}
	if diff := cmp.Diff(wantPorts, game.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if len(pod.Spec.Containers[0].Env) != 0 {
		t.Errorf("a container that isn't the game got %v", pod.Spec.Containers[0].Env)
	}
	if !slices.ContainsFunc(game.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/world" }) {
		t.Error("the game has no disk")
	}
	if pod.Labels["team"] != "red" || pod.Annotations["note"] != "x" || pod.Labels[wellknown.FleetLabel] != "lobbies" || pod.Labels[wellknown.ServerLabel] != "lobby" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
}

// What connects is told of a Pod is what the Pod has.
func TestPortsAreReadFromThePod(t *testing.T) {
	s := full()
	pod := buildPod(s, sidecar, []int32{7000, 7001, 0}, true)
	want := []v1alpha1.ServerPortStatus{
		{Name: "game", Port: 7000, Protocol: v1alpha1.ServerProtocolTCPUDP},
		{Name: "query-of-a-game", Port: 7001, Protocol: v1alpha1.ServerProtocolTCPUDP},
	}
	if diff := cmp.Diff(want, hostports.Status(s, pod)); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// Names and numbers that others have, too, don't mislead: neither a template's own port of the
// same name, nor the second name of a port over both.
func TestPortsAreTheirOwn(t *testing.T) {
	s := full()
	s.Spec.Template.Spec.Containers[1].Ports = []corev1.ContainerPort{{Name: "game", ContainerPort: 9000}, {Name: "free", ContainerPort: 7010, HostPort: 7010}}
	s.Spec.Ports = []v1alpha1.ServerPort{
		{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolTCP, Expose: v1alpha1.ExposeHostPort},
		{Name: "both", ContainerPort: 7778, Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposeHostPort},
		{Name: "both-udp", ContainerPort: 7779, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort},
		{Name: "free", Protocol: v1alpha1.ServerProtocolTCP, Expose: v1alpha1.ExposePassthrough},
	}
	numbers := []int32{7001, 7002, 7003, 7004}
	if got := hostports.Of(s, buildPod(s, sidecar, numbers, true)); !slices.Equal(got, numbers) {
		t.Errorf("the ports are %v, want %v", got, numbers)
	}
}

// Without a port on the node a Server is reached at its Pod alone, so that no two are told to be
// at one address and port.
func TestAnAddressIsWhereThePortsAre(t *testing.T) {
	s := full()
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
	o := observed{pod: buildPod(s, sidecar, []int32{7000, 7001, 0}, true), node: node}
	o.pod.Status.PodIP = "10.1.2.3"
	if setPod(s, o); s.Status.Address != "192.0.2.1" || len(s.Status.Ports) != 2 {
		t.Errorf("exposed ports are at %s: %+v", s.Status.Address, s.Status.Ports)
	}
	s.Spec.Ports = s.Spec.Ports[2:]
	o.pod = buildPod(s, sidecar, []int32{0}, true)
	o.pod.Status.PodIP = "10.1.2.3"
	want := []v1alpha1.ServerPortStatus{{Name: "inner", Port: 80}}
	if setPod(s, o); s.Status.Address != "10.1.2.3" || !cmp.Equal(s.Status.Ports, want) {
		t.Errorf("inner ports are at %s: %+v", s.Status.Address, s.Status.Ports)
	}
}

func TestSidecarStandsBesideTheGame(t *testing.T) {
	pod := buildPod(full(), sidecar, []int32{7000, 7001, 0}, true)
	first := pod.Spec.InitContainers[0]
	if first.Name != wellknown.SidecarContainer || *first.RestartPolicy != corev1.ContainerRestartPolicyAlways || first.Image != "sidecar:1" || len(pod.Spec.InitContainers) != 2 {
		t.Errorf("the init containers are %+v; want the sidecar first, which always restarts", pod.Spec.InitContainers)
	}
	want := []string{
		"--operator=http://operator:8080", "--grpc-port=9357", "--http-port=9358", "--listen=:9359",
		"--readiness=Auto", "--unreported=Allowed", "--health-initial-delay=1m0s", "--health-failure-threshold=4", "--capacity=16", "--probe=source:7000",
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
			spec := buildPod(s, beside, []int32{0, 0, 0}, true).Spec
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
	pod := buildPod(s, sidecar, []int32{7000, 7001, 0}, true)
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
	if pod := buildPod(s, sidecar, []int32{7000, 7001, 0}, true); !*pod.Spec.AutomountServiceAccountToken {
		t.Error("what the template says is overruled")
	}
}

func TestPodSaysWhetherItMayBeEvicted(t *testing.T) {
	for deletable, want := range map[bool][3]string{true: {"true", "true", "false"}, false: {"false", "false", "true"}} {
		pod := buildPod(full(), sidecar, []int32{7000, 7001, 0}, deletable)
		got := [3]string{pod.Labels[wellknown.DeletionAllowedLabel], pod.Annotations[safeToEvict], pod.Annotations[doNotDisrupt]}
		if got != want {
			t.Errorf("deletable %t: label, safe-to-evict, do-not-disrupt are %v, want %v", deletable, got, want)
		}
	}
}
