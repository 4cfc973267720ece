package podbuilder

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// buildGame gives the game's container its environment, ports and disks.
func buildGame(s *v1alpha1.Server, spec *corev1.PodSpec, game *corev1.Container, hostPorts []int32) {
	env := []corev1.EnvVar{
		{Name: "SERVER_NAME", Value: s.Name},
		{Name: "SERVER_NAMESPACE", Value: s.Namespace},
		{Name: "AGONES_SDK_GRPC_PORT", Value: strconv.Itoa(wellknown.SDKGRPCPort)},
		{Name: "AGONES_SDK_HTTP_PORT", Value: strconv.Itoa(wellknown.SDKHTTPPort)},
	}
	for i, port := range s.Spec.Ports {
		number := hostports.Listen(port, hostPorts[i])
		env = append(env, corev1.EnvVar{Name: "SERVER_PORT_" + strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_")), Value: strconv.Itoa(int(number))})
		for _, protocol := range port.Protocol.Transports() {
			setPort(game, corev1.ContainerPort{
				Name: gamepod.PortName(&port, protocol), ContainerPort: number, Protocol: protocol, HostPort: hostPorts[i],
			})
		}
	}
	setEnv(game, env...)
	for _, disk := range s.Spec.Storage {
		name := disks.ShortName("storage-" + disk.Name)
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: disks.ClaimName(s.Name, disk.Name)},
		}})
		game.VolumeMounts = append(game.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: disk.MountPath})
	}
}

// setEnv adds variables, but for those that the template has.
func setEnv(c *corev1.Container, variables ...corev1.EnvVar) {
	for _, v := range variables {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name }) {
			c.Env = append(c.Env, v)
		}
	}
}

// setPort adds a port, or adds the host port to a port that the template has.
func setPort(c *corev1.Container, port corev1.ContainerPort) {
	for i := range c.Ports {
		have := &c.Ports[i]
		if have.ContainerPort == port.ContainerPort && cmp.Or(have.Protocol, corev1.ProtocolTCP) == port.Protocol {
			have.HostPort = max(have.HostPort, port.HostPort)
			return
		}
	}
	if slices.ContainsFunc(c.Ports, func(have corev1.ContainerPort) bool { return have.Name == port.Name }) {
		port.Name = "" // the name is the template's, the port is ours
	}
	c.Ports = append(c.Ports, port)
}

// A game that may call the REST API for itself shows a code, which its sidecar has, too.

// setCode gives a container the code, unless the template has a variable of that name.
func setCode(s *v1alpha1.Server, c *corev1.Container) {
	setEnv(c, corev1.EnvVar{Name: gameapi.CodeEnv, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: gameapi.SecretName(s.Name, s.UID)}, Key: gameapi.SecretKey,
	}}})
}
