package templatehash

import (
	"slices"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/defaults"
)

// Revision is the part of a template by which revisions differ. What is spoken over a port's
// transport protocol isn't among it, nor what only a GameType's Service and ElasticService are
// made from: that changes without new Servers. What a disk began with is read once. What a template doesn't
// say is said: one with the defaults and one without them are the same revision.
func Revision(t v1alpha1.ServerTemplate) v1alpha1.ServerTemplate {
	t.Spec = RevisionSpec(t.Spec)
	return t
}

// RevisionSpec is Revision for a Server's spec.
func RevisionSpec(s v1alpha1.ServerSpec) v1alpha1.ServerSpec {
	s = defaults.Filled(s)
	s.Replicas = nil // the API server fills it in
	s.Ports = OfServers(s.Ports)
	for i := range s.Ports {
		s.Ports[i].Protocol = s.Ports[i].Protocol.Transport()
	}
	s.Storage = slices.Clone(s.Storage)
	for i := range s.Storage {
		s.Storage[i].From = nil
	}
	return s
}

// OfServers are a GameType's ports as its Servers have them.
func OfServers(ports []v1alpha1.ServerPort) []v1alpha1.ServerPort {
	ports = slices.Clone(ports)
	for i := range ports {
		p := &ports[i]
		p.Publish, p.Readiness, p.AbortOnClose, p.Asleep = nil, "", nil, nil
	}
	return ports
}
