package podbuilder

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

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
	pod := Build(full(), sidecar, []int32{7000, 7001, 0}, true)
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
	pod := Build(s, sidecar, []int32{7000, 7001, 0}, true)
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
	if got := hostports.Of(s, Build(s, sidecar, numbers, true)); !slices.Equal(got, numbers) {
		t.Errorf("the ports are %v, want %v", got, numbers)
	}
}

func TestPodSaysWhetherItMayBeEvicted(t *testing.T) {
	for deletable, want := range map[bool][3]string{true: {"true", "true", "false"}, false: {"false", "false", "true"}} {
		pod := Build(full(), sidecar, []int32{7000, 7001, 0}, deletable)
		got := [3]string{pod.Labels[wellknown.DeletionAllowedLabel], pod.Annotations[safeToEvict], pod.Annotations[doNotDisrupt]}
		if got != want {
			t.Errorf("deletable %t: label, safe-to-evict, do-not-disrupt are %v, want %v", deletable, got, want)
		}
	}
}

// A Pod with disks goes where the other Pods of them are, if it can. Nothing else of it changes, and
// nothing at all of one without disks.
func TestOnlyAPodWithDisksPrefersTheNodeThatHasThem(t *testing.T) {
	s := full()
	own := corev1.WeightedPodAffinityTerm{Weight: 7, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}}
	s.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{own}}}
	pod := Build(s, sidecar, []int32{7000, 7001, 0}, true)
	terms := pod.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if pod.Labels[wellknown.DisksLabel] != s.Name || len(terms) != 2 || terms[0].Weight != 7 || terms[1].Weight != 100 ||
		terms[1].PodAffinityTerm.LabelSelector.MatchLabels[wellknown.DisksLabel] != s.Name {
		t.Errorf("it has labels %v and prefers %+v", pod.Labels, terms)
	}
	if n := len(s.Spec.Template.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution); n != 1 {
		t.Errorf("the template itself has %d terms now", n)
	}
	s = full()
	s.Spec.Storage, s.Spec.Template.Labels = nil, map[string]string{wellknown.DisksLabel: "another"}
	pod = Build(s, sidecar, []int32{7000, 7001, 0}, true)
	if _, ok := pod.Labels[wellknown.DisksLabel]; ok || pod.Spec.Affinity != nil {
		t.Errorf("without disks it has labels %v and affinity %+v", pod.Labels, pod.Spec.Affinity)
	}
}

// The Pod of a Server in a Fleet prefers the nodes of the Fleet's others, beside its disks, unless its
// template spreads its Pods itself; and one from when the Server had that preference has it once.
func TestAPodOfAFleetPrefersTheNodesOfItsOthers(t *testing.T) {
	t.Parallel()
	owned := func(change func(*v1alpha1.Server)) *v1alpha1.Server {
		s := full()
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
			&v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Name: "lobbies", UID: "fleet"}}, v1alpha1.GroupVersion.WithKind("Fleet"))}
		s.Spec.Storage = nil
		change(s)
		return s
	}
	fleets := corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey:   "kubernetes.io/hostname",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dormouse.dev/fleet": "lobbies"}},
	}}
	disks := corev1.WeightedPodAffinityTerm{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey:   "kubernetes.io/hostname",
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"dormouse.dev/disks": "lobby"}},
	}}
	together := func(terms ...corev1.WeightedPodAffinityTerm) *corev1.Affinity {
		return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	apart := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{fleets}}}
	for name, c := range map[string]struct {
		server *v1alpha1.Server
		want   *corev1.Affinity
	}{
		"Packed":             {owned(func(*v1alpha1.Server) {}), together(fleets)},
		"Packed, with disks": {owned(func(s *v1alpha1.Server) { s.Spec.Storage = full().Spec.Storage }), together(fleets, disks)},
		"of an earlier version": {owned(func(s *v1alpha1.Server) {
			s.Spec.Template.Labels[wellknown.FleetLabel], s.Spec.Template.Spec.Affinity = "lobbies", together(fleets)
		}), together(fleets)},
		"Distributed":             {owned(func(s *v1alpha1.Server) { s.Spec.Template.Spec.Affinity = apart }), apart},
		"its label is gone":       {owned(func(s *v1alpha1.Server) { s.Labels = nil }), together(fleets)},
		"in no Fleet":             {owned(func(s *v1alpha1.Server) { s.OwnerReferences = nil }), nil},
		"of somebody else's kind": {owned(func(s *v1alpha1.Server) { s.OwnerReferences[0].APIVersion = "example.com/v1" }), nil},
	} {
		pod := Build(c.server, sidecar, []int32{7000, 7001, 0}, true)
		if diff := cmp.Diff(c.want, pod.Spec.Affinity); diff != "" {
			t.Errorf("%s: affinity (-want +got):\n%s", name, diff)
		}
		if label := pod.Labels[wellknown.FleetLabel]; label != "lobbies" {
			t.Errorf("%s: it is labelled %v", name, pod.Labels)
		}
	}
}

// The sidecar's image is the administrator's, and its Secrets are, too. They are no part of the Pod's hash: one
// that is there already isn't outdated for them.
func TestAPodPullsTheSidecarWithTheSecretsOfItsPodTemplate(t *testing.T) {
	t.Parallel()
	s := full()
	s.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "games"}}
	without := Build(s, sidecar, []int32{7000, 7001, 0}, true)
	if diff := cmp.Diff(s.Spec.Template.Spec.ImagePullSecrets, without.Spec.ImagePullSecrets); diff != "" {
		t.Errorf("with a PodTemplate that names none (-want +got):\n%s", diff)
	}
	with := sidecar
	with.PullSecrets = []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "games"}}
	want := without.DeepCopy()
	want.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "games"}, {Name: "mirror"}}
	if diff := cmp.Diff(want, Build(s, with, []int32{7000, 7001, 0}, true)); diff != "" {
		t.Errorf("with one that does (-want +got):\n%s", diff)
	}
	for what, sidecar := range map[string]Sidecar{"nobody names one": sidecar, "the PodTemplate alone names some": with} {
		if pod := Build(full(), sidecar, []int32{7000, 7001, 0}, true); pod.Spec.ImagePullSecrets != nil {
			t.Errorf("where %s it has %v, want those of its ServiceAccount", what, pod.Spec.ImagePullSecrets)
		}
	}
}

// The name of a volume may have 63 characters, as that of a disk. A shorter one stays as it is.
func TestADiskOfAnyNameHasAVolume(t *testing.T) {
	t.Parallel()
	for length, same := range map[int]bool{5: true, 55: true, 56: false, 63: false} {
		s, disk := full(), strings.Repeat("w", length)
		s.Spec.Storage[0].Name = disk
		pod := Build(s, sidecar, []int32{7000, 7001, 0}, true)
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
		name := pod.Spec.Volumes[i].Name
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 || (name == "storage-"+disk) != same {
			t.Errorf("a disk's name of %d characters makes a volume named %s: %v", length, name, wrong)
		}
		if !slices.Contains(pod.Spec.Containers[1].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/world"}) {
			t.Errorf("the game mounts %+v, want volume %s", pod.Spec.Containers[1].VolumeMounts, name)
		}
	}
}
