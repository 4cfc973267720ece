package endpoints

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/times"
)

const (
	// Linger is how long a resolver's endpoint stays after its last client.
	Linger = 10 * time.Second
	// LostAfter is when a silent resolver counts as having no clients.
	LostAfter = 5 * time.Minute
)

// Role is the role of a resolver pod's endpoint in the Service's slices.
type Role int

const (
	// RoleNone means no endpoint.
	RoleNone Role = iota
	// RoleReady means that it gets new clients.
	RoleReady
	// RoleTerminating means that it keeps the clients it has.
	RoleTerminating
)

// CurrentRoles are the resolvers' roles in slices, by their pods' UIDs. A resolver that is
// ready in any slice is ready.
func CurrentRoles(slices []discoveryv1.EndpointSlice) map[string]Role {
	roles := map[string]Role{}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			switch {
			case e.TargetRef == nil:
			case ptr.Deref(e.Conditions.Ready, true):
				roles[string(e.TargetRef.UID)] = RoleReady
			case roles[string(e.TargetRef.UID)] == RoleNone:
				roles[string(e.TargetRef.UID)] = RoleTerminating
			}
		}
	}
	return roles
}

// StandIns decides each resolver's role, starting from the slices as they are now, and when to
// look again. standIn is set where resolvers are to get new clients.
func StandIns(now time.Time, ports []v1alpha1.PortStatus, resolvers []Resolver, slices []discoveryv1.EndpointSlice, standIn bool) (roles map[string]Role, requeueAfter requeue.After) {
	current := CurrentRoles(slices)
	roles = map[string]Role{}
	for _, r := range resolvers {
		was := current[r.UID]
		requeueAfter.AtMost(untilItListens(ports, r, standIn))
		switch {
		case standIn && r.Ready && (r.ListensOn(ports) || !r.Reachable && was == RoleReady):
			roles[r.UID] = RoleReady
		case was == RoleNone:
		case !r.Reachable:
			if now.Sub(r.SilentSince) < LostAfter {
				roles[r.UID] = RoleTerminating
				requeueAfter.AtMost(Linger)
			}
		case r.Sessions > 0 || r.Queued > 0:
			roles[r.UID] = RoleTerminating
			requeueAfter.AtMost(Linger)
		default:
			// Clients still came until kube-proxy applied that it is not ready any more, and
			// this pass may not have seen them yet.
			since := r.SteppedDown
			if was == RoleReady || since.IsZero() {
				since = now
			}
			if left := times.Latest(r.LastActive, since).Add(Linger).Sub(now); left > 0 {
				roles[r.UID] = RoleTerminating
				requeueAfter.AtMost(left)
			}
		}
	}
	return roles, requeueAfter
}

// untilItListens is when to ask a resolver again that should listen on every port and doesn't;
// 0 when there is no need.
func untilItListens(ports []v1alpha1.PortStatus, r Resolver, standIn bool) time.Duration {
	switch {
	case !r.Ready, r.Reachable && r.ListensOn(ports):
		return 0
	case !r.Reachable, len(r.PortErrors) > 0:
		return 5 * time.Second
	case standIn:
		return 200 * time.Millisecond // its listeners are about to open
	default:
		return time.Second
	}
}

// SteppedDown is since when resolvers' endpoints have been terminating, by the pods' UIDs.
type SteppedDown map[string]time.Time

// Follow takes in the current slices, and sets each resolver's SteppedDown.
func (s *SteppedDown) Follow(now time.Time, slices []discoveryv1.EndpointSlice, resolvers []Resolver) {
	current, former := CurrentRoles(slices), *s
	*s = nil
	for i := range resolvers {
		r := &resolvers[i]
		if current[r.UID] != RoleTerminating {
			continue
		}
		if r.SteppedDown = former[r.UID]; r.SteppedDown.IsZero() {
			r.SteppedDown = now
		}
		if *s == nil {
			*s = SteppedDown{}
		}
		(*s)[r.UID] = r.SteppedDown
	}
}
