package route

import (
	"slices"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// page is what people are shown on a port while the service wakes, according to the spec. A wake
// usually takes as long as the last one did.
func page(es *v1alpha1.ElasticService, port v1alpha1.PortStatus) *proto.Page {
	i := slices.IndexFunc(es.Spec.Ports, func(p v1alpha1.PortSpec) bool { return p.Name == port.Name && p.HTTP != nil })
	if i < 0 || port.Protocol != v1alpha1.ProtocolHTTP || es.Spec.Ports[i].HTTP.WaitingPage == nil {
		return nil
	}
	spec := es.Spec.Ports[i].HTTP.WaitingPage
	p := &proto.Page{Title: spec.Title, Message: spec.Message}
	if last := es.Status.LastWake; last != nil {
		p.Takes = max(0, last.Took.Duration)
	}
	return p
}
