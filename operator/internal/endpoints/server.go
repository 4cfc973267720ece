package endpoints

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Server is one pod of the target.
type Server struct {
	UID     string
	Address string
	// Serving is the pod's readiness.
	Serving bool
	// Terminating says that the pod is being deleted.
	Terminating bool
	// Draining says that the pod takes nobody any more, which its readiness tells some
	// seconds later, or not at all: its Server drains, or the target has just been at
	// zero.
	Draining bool
	// Full says that it has as many players as it may have.
	Full bool
}

// up reports whether the server takes new clients.
func (s Server) up() bool { return s.Serving && !s.Terminating && !s.Draining }

// CountUp counts the servers that take new clients.
func CountUp(servers []Server) int {
	n := 0
	for _, s := range servers {
		if s.up() {
			n++
		}
	}
	return n
}

// AllFull reports whether each server that is up has no room for another player.
func AllFull(servers []Server) bool {
	return !slices.ContainsFunc(servers, func(s Server) bool { return s.up() && !s.Full })
}

// Pods is what is known of the target's pods beyond what their endpoints say. Draining and
// full ones are by name, which is their Server's name too, and unsettled ones by UID.
type Pods struct {
	// Draining take nobody any more, and Full have as many players as they may have.
	Draining, Full map[string]bool
	// Unsettled may be ended at any moment.
	Unsettled map[types.UID]bool
}

// takeNobody reports whether an endpoint is not to get new clients, whatever its pod's
// readiness says.
func (p Pods) takeNobody(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && (p.Draining[e.TargetRef.Name] || p.Unsettled[e.TargetRef.UID])
}

// ServersOf reads the pods out of the private Service's slices, each pod once
// though it may stand in a slice of each address family.
func ServersOf(all []discoveryv1.EndpointSlice, known Pods) []Server {
	var servers []Server
	seen := map[string]bool{}
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			s := Server{
				UID:         UIDOf(&e),
				Address:     e.Addresses[0],
				Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
				Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
				Draining:    known.takeNobody(&e),
				Full:        e.TargetRef != nil && known.Full[e.TargetRef.Name],
			}
			if !seen[s.UID] {
				seen[s.UID] = true
				servers = append(servers, s)
			}
		}
	}
	return servers
}

// UIDOf tells the pod of an endpoint apart from others.
func UIDOf(e *discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return e.Addresses[0]
	}
	return string(e.TargetRef.UID)
}

// AnyRunning reports whether some server may be up again.
func AnyRunning(servers []Server) bool {
	for _, s := range servers {
		if !s.Terminating && !s.Draining {
			return true
		}
	}
	return false
}
