package endpoints

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Server is one pod of the target.
type Server struct {
	UID string
	// Addresses are one of each address family that it is in slices of.
	Addresses []string
	// Serving is the pod's readiness.
	Serving bool
	// Terminating reports whether the pod is being deleted.
	Terminating bool
	// Draining reports whether the pod takes no new clients, though its readiness shows that
	// only seconds later, or never: its Server drains, or the target has just been at zero.
	Draining bool
	// Full reports whether the pod has as many players as it may have.
	Full bool
}

// AllFull reports whether each server that is up has no room for another player.
func AllFull(servers []Server) bool {
	return !slices.ContainsFunc(servers, func(s Server) bool { return s.Serving && !s.Terminating && !s.Draining && !s.Full })
}

// Pods is what is known of the target's pods beyond their endpoints. Draining and full ones are
// by name, which is also their Server's name, and unsettled ones by UID.
type Pods struct {
	// Draining pods take no new clients, and Full ones have as many players as they may have.
	Draining, Full map[string]bool
	// Unsettled pods may be ended at any moment.
	Unsettled map[types.UID]bool
}

// takeNobody reports whether an endpoint must not get new clients, whatever its pod's readiness
// is.
func (p Pods) takeNobody(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && (p.Draining[e.TargetRef.Name] || p.Unsettled[e.TargetRef.UID])
}

// ServersOf reads the pods from the private Service's slices, each pod once, though it may be
// in a slice of each address family, and counts those that take new clients.
func ServersOf(all []discoveryv1.EndpointSlice, pods Pods) (servers []Server, up int) {
	at := map[string]int{}
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			s := Server{
				UID:         e.Addresses[0],
				Addresses:   e.Addresses[:1:1],
				Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
				Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
				Draining:    pods.takeNobody(&e),
			}
			if pod := e.TargetRef; pod != nil {
				s.UID, s.Full = string(pod.UID), pods.Full[pod.Name]
			}
			if i, seen := at[s.UID]; seen {
				if have := &servers[i].Addresses; !slices.Contains(*have, e.Addresses[0]) {
					*have = append(*have, e.Addresses[0])
				}
				continue
			}
			at[s.UID] = len(servers)
			servers = append(servers, s)
			if s.Serving && !s.Terminating && !s.Draining {
				up++
			}
		}
	}
	return servers, up
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
