package route

import (
	"cmp"
	"net/http"
	"slices"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// probes are the requests that are answered on a port according to the spec.
func probes(es *v1alpha1.ElasticService, port string) (out []proto.Probe) {
	i := slices.IndexFunc(es.Spec.Ports, func(p v1alpha1.PortSpec) bool { return p.Name == port && p.Asleep != nil })
	if i < 0 {
		return nil
	}
	for _, p := range es.Spec.Ports[i].Asleep.Probes {
		probe := proto.Probe{
			Method: cmp.Or(string(p.Method), http.MethodGet),
			Path:   p.Path, PathPrefix: p.PathPrefix, PathRegex: compile(p.PathRegex),
			Status: cmp.Or(int(p.Response.Status), http.StatusOK), Body: p.Response.Body,
		}
		for _, h := range p.Headers {
			probe.Headers = append(probe.Headers, proto.HeaderMatch{
				Name: h.Name, Value: cmp.Or(h.Prefix, h.Value), Prefix: h.Prefix != "", Regex: compile(h.Regex),
			})
		}
		for _, q := range p.QueryParams {
			probe.Query = append(probe.Query, proto.QueryMatch{Name: q.Name, Value: q.Value, Regex: compile(q.Regex)})
		}
		for _, h := range p.Response.Headers {
			probe.Fields = append(probe.Fields, proto.Header{Name: h.Name, Value: h.Value})
		}
		out = append(out, probe)
	}
	return out
}
