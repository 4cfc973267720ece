// Package seen has what passes observe of fixture's objects, for tests of packages that decide
// by it.
package seen

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// Standing is a resolver that listens on Lobby's port.
func Standing(name string) endpoints.Resolver {
	return endpoints.Resolver{
		UID: name, PodName: name, Namespace: "dormouse-system", Addresses: []string{"10.244.1." + name[len(name)-1:]},
		Ready: true, Reachable: true, Listening: map[int32]bool{10001: true}, Started: fixture.At(-3600),
	}
}

// Of is what is observed of a target with replicas, and servers.
func Of(replicas int32, servers ...endpoints.Server) planner.Observed {
	o := planner.Observed{
		Service:   fixture.Service(),
		Scale:     planner.Scale{Replicas: replicas},
		Servers:   servers,
		Resolvers: []endpoints.Resolver{Standing("resolver-1")},
		Triggers:  trigger.Reading{At: fixture.At(0), BelowSince: fixture.At(-3600)},
	}
	for _, s := range servers {
		if s.Serving && !s.Terminating && !s.Draining {
			o.Up++
		}
	}
	return o
}

// UpServer is a server that takes new clients.
var UpServer = endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}, Serving: true}

// With changes an observation.
func With(o planner.Observed, changes ...func(*planner.Observed)) planner.Observed {
	for _, change := range changes {
		change(&o)
	}
	return o
}

// Plan is the plan for an object, with what a pass derives from it and from what it observed.
func Plan(now time.Time, es *v1alpha1.ElasticService, o planner.Observed, f planner.Findings) planner.Plan {
	o.Is = spec.Of(es)
	o.Blocked = planner.Blocked(es, o, o.Is.Handoff)
	return planner.Make(now, es, o, f)
}

// SlicesOf are the EndpointSlices of a plan, as the controller writes them.
func SlicesOf(es *v1alpha1.ElasticService, o planner.Observed, p planner.Plan) []*discoveryv1.EndpointSlice {
	return endpoints.Slices(es, endpoints.Wanted{
		Service: o.Service, Resolvers: o.Resolvers, Roles: p.Roles, Stay: p.Stay,
		Sources: o.Sources, Pods: o.Pods, Slices: o.Slices, Leftovers: o.Leftovers.Slices,
		Accepting: p.Accepting,
	})
}

// InSlices gives resolvers their roles in the Service's slices.
func InSlices(o planner.Observed, es *v1alpha1.ElasticService, roles map[string]endpoints.Role) planner.Observed {
	for _, s := range SlicesOf(es, o, planner.Plan{Roles: roles}) {
		o.Slices = append(o.Slices, *s)
	}
	o.Resolvers = slices.Clone(o.Resolvers)
	for i := range o.Resolvers {
		o.Resolvers[i].Role = roles[o.Resolvers[i].UID]
	}
	return o
}

// Unprobed makes the Service one without a selector, whose pods have no readiness probe.
func Unprobed(o *planner.Observed) {
	o.Service.Spec.Selector = nil
	o.Scale.Readiness = v1alpha1.PodReadinessConnect
}
