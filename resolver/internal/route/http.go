package route

import (
	"slices"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// httpOf has a port's settings of HTTP in the spec; nil where there are none that count.
func httpOf(es *v1alpha1.ElasticService, port v1alpha1.PortStatus) *v1alpha1.PortHTTP {
	i := slices.IndexFunc(es.Spec.Ports, func(p v1alpha1.PortSpec) bool { return p.Name == port.Name })
	if i < 0 || port.Protocol != v1alpha1.ProtocolHTTP {
		return nil
	}
	return es.Spec.Ports[i].HTTP
}

// page is what people are shown on a port while the service wakes, according to the spec. A wake
// usually takes as long as the last one did.
func page(es *v1alpha1.ElasticService, port v1alpha1.PortStatus) *proto.Page {
	http := httpOf(es, port)
	if http == nil || http.WaitingPage == nil {
		return nil
	}
	p := &proto.Page{Title: http.WaitingPage.Title, Message: http.WaitingPage.Message}
	if last := es.Status.LastWake; last != nil {
		p.Takes = max(0, last.Took.Duration)
	}
	return p
}

// marksColdStarts reports whether the first response on a port to a client that was held says
// so.
func marksColdStarts(es *v1alpha1.ElasticService, port v1alpha1.PortStatus) bool {
	http := httpOf(es, port)
	return http != nil && http.ColdStartHeader
}
