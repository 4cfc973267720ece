package podbuilder

import (
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/defaults"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// Hash is a hash of what a Server's Pod is made from. Each field of the spec is named, and what
// isn't set counts for nothing, so that a field that a later version adds restarts no Server. Of what has
// a default it doesn't matter whether that is said.
func Hash(s *v1alpha1.ServerSpec) string {
	filled := defaults.Filled(*s)
	return hashOf(&filled)
}

// MadeFrom reports whether a Pod that has a hash was made from a spec. Earlier versions left it to the API
// server to fill in defaults, and hashed what they got: that is what they have of a spec without them
// while the kinds are newer than the operator.
func MadeFrom(hash string, s *v1alpha1.ServerSpec) bool { return hash == Hash(s) || hash == hashOf(s) }

func hashOf(s *v1alpha1.ServerSpec) string {
	type port struct {
		Name, Protocol, Expose string
		Container, Host        int32
	}
	type disk struct{ Name, Path string }
	made := struct {
		Template  corev1.PodTemplateSpec
		Container string
		Ports     []port
		Players   *v1alpha1.PlayersSpec
		Probe     *v1alpha1.PlayersProbe
		Readiness v1alpha1.ServerReadiness
		Health    v1alpha1.HealthSpec
		Disks     []disk
	}{
		Template: s.Template, Container: s.GameContainer, Players: s.Players, Probe: gamepod.Probe(s), Readiness: s.Readiness, Health: s.Health,
	}
	for _, p := range s.Ports {
		made.Ports = append(made.Ports, port{p.Name, string(p.Protocol.Transport()), string(p.Expose), p.ContainerPort, p.HostPort})
	}
	for _, d := range s.Storage {
		made.Disks = append(made.Disks, disk{d.Name, d.MountPath})
	}
	return templatehash.OfAny(made)
}
