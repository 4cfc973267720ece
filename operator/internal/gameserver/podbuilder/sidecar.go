package podbuilder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/defaults"
	"dormouse.dev/dormouse/operator/internal/hostports"
	"dormouse.dev/dormouse/operator/internal/reportkeys"
)

// Sidecar is what runs beside each game.
type Sidecar struct {
	// Container has the administrator's settings for it: its image, resources, security and
	// environment.
	Container corev1.Container
	// PullSecrets name the Secrets with which its image is pulled, beside those that the game's template names. Where
	// that names none the ServiceAccount's count.
	PullSecrets []corev1.LocalObjectReference
	// OperatorURL is where it reports to.
	OperatorURL string
	// APIURL is where the game finds the REST API, if its Server has an API for its process.
	APIURL string
	// ReportKey is the ID of the key with which it signs its reports; empty: it has a token in
	// a volume.
	ReportKey string
	// AfterGame is set where it may start after the game, because it outlives the game by itself.
	AfterGame bool
}

// addSidecar adds the sidecar to a Pod's containers. Where that works it is the last of them, so
// that the game needn't wait for it to start. Else it is an init container that restarts always,
// which kubelet starts before the game and ends after it:
//   - where the Pod's start waits for it;
//   - in a Pod that doesn't restart always, which would not end with its game;
//   - on the node's network, where the game's sockets are among the node's;
//   - beside init containers of the template that restart always, which end after the sidecar.
func addSidecar(spec *corev1.PodSpec, c corev1.Container, afterGame bool) {
	always := func(c corev1.Container) bool {
		return ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
	}
	restarts := spec.RestartPolicy == "" || spec.RestartPolicy == corev1.RestartPolicyAlways
	if !afterGame || !restarts || spec.HostNetwork || slices.ContainsFunc(spec.InitContainers, always) {
		c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = append([]corev1.Container{c}, spec.InitContainers...)
		return
	}
	var ports []string
	for _, game := range spec.Containers {
		for _, p := range game.Ports {
			if p.Protocol == corev1.ProtocolSCTP {
				continue // the sidecar's tables don't show it
			}
			ports = append(ports, fmt.Sprintf("%d/%s", p.ContainerPort, cmp.Or(p.Protocol, corev1.ProtocolTCP)))
		}
	}
	c.Args = append(c.Args, "--outlive-game")
	if len(ports) > 0 {
		c.Args = append(c.Args, "--game-ports="+strings.Join(ports, ","))
	}
	spec.Containers = append(spec.Containers, c)
}

// awaitsSidecar reports whether a Pod's start waits for its sidecar:
//   - the game tells it that it is ready. The SDK's clients that find nobody there try again after
//     a second, which is longer than the sidecar takes;
//   - a port is exposed on the node, where players may come before kubelet shows the Pod's address;
//   - a container has a postStart hook, which may wait for it. kubelet starts the next container
//     after the hook.
func awaitsSidecar(s *v1alpha1.Server) bool {
	return s.Spec.Readiness == v1alpha1.ServerReadinessSDK || slices.ContainsFunc(s.Spec.Ports, hostports.Exposed) || slices.ContainsFunc(s.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	})
}

// buildSidecar builds the container beside the game. The Pod is ready only while the sidecar
// reports that the game takes players.
func buildSidecar(s *v1alpha1.Server, sidecar Sidecar, hostPorts []int32) corev1.Container {
	spec := defaults.Filled(s.Spec) // a sidecar of another version may have others
	health := spec.Health
	args := []string{
		"--operator=" + sidecar.OperatorURL,
		fmt.Sprintf("--grpc-port=%d", wellknown.SDKGRPCPort),
		fmt.Sprintf("--http-port=%d", wellknown.SDKHTTPPort),
		fmt.Sprintf("--listen=:%d", wellknown.SidecarPort),
		"--readiness=" + string(spec.Readiness),
		"--unreported=" + string(spec.Deletion.Unreported),
		"--health-initial-delay=" + health.InitialDelay.Duration.String(),
		"--health-period=" + health.Period.Duration.String(),
		fmt.Sprintf("--health-failure-threshold=%d", health.FailureThreshold),
	}
	if health.Disabled {
		args = append(args, "--health-disabled")
	}
	if players := s.Spec.Players; players != nil {
		args = append(args, fmt.Sprintf("--capacity=%d", players.Capacity))
	}
	if probe := gamepod.Probe(&s.Spec); probe != nil {
		args = append(args, fmt.Sprintf("--probe=%s:%d", probe.Type, probePort(s, probe.Port, hostPorts)))
	}
	c := sidecar.Container.DeepCopy()
	c.Name = wellknown.SidecarContainer
	c.RestartPolicy = nil
	c.Args = args
	setEnv(c, corev1.EnvVar{Name: "SERVER_NAME", Value: s.Name}, corev1.EnvVar{Name: "SERVER_NAMESPACE", Value: s.Namespace})
	c.Ports = []corev1.ContainerPort{{Name: "dormouse", ContainerPort: wellknown.SidecarPort, Protocol: corev1.ProtocolTCP}}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(wellknown.SidecarPort)}},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1,
	}
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == gameapi.CodeEnv })
	return *c
}

// probePort is the number of the port that the player probe uses: the one of that name, else the
// first.
func probePort(s *v1alpha1.Server, name string, hostPorts []int32) int32 {
	for i, port := range s.Spec.Ports {
		if name == "" || port.Name == name {
			return hostports.Listen(port, hostPorts[i])
		}
	}
	return 0 // the API server refuses that
}

// A sidecar shows who it is with a key in its environment. Where it can't have one it has a token
// in a volume, for which kubelet lets the Pod wait some 300 ms.

const (
	volumeName = "dormouse-token"
	tokenDir   = "/var/run/secrets/dormouse.dev" //nolint:gosec // a directory's name is no credential
	// tokenSeconds is how long a sidecar's token is valid; kubelet renews it before.
	tokenSeconds = 3600
)

// setCredential gives the sidecar what it shows who it is with: a key, or a token that kubelet keeps valid.
func setCredential(pod *corev1.PodSpec, c *corev1.Container, key string) {
	if key == "" {
		c.Args = append(c.Args, "--token-file="+tokenDir+"/token")
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeName, MountPath: tokenDir, ReadOnly: true})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volumeName, VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					Audience: wellknown.TokenAudience, ExpirationSeconds: ptr.To[int64](tokenSeconds), Path: "token",
				},
			}}},
		}})
		return
	}
	c.Args = append(c.Args, "--report-key-id="+key)
	c.Env = append(c.Env,
		corev1.EnvVar{Name: wellknown.ReportKeyEnv, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: reportkeys.SecretName(key)}, Key: reportkeys.KeyData,
		}}},
		corev1.EnvVar{Name: wellknown.PodUIDEnv, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
		}})
}
