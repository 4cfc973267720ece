package endpoints

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/times"
)

const (
	// Linger is how long a resolver's endpoint stays after its last client.
	Linger = 10 * time.Second
	// LostAfter is when a silent resolver's endpoint goes, unless it gets new clients. One that
	// isn't ready counts as having no clients then.
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

// StandIns decides each resolver's role, starting from the one that it has, and when to look again.
// standIn is set where resolvers are to get new clients, and lingers where the endpoint of one that
// was replaced stays for a while though nobody is known to be there.
func StandIns(now time.Time, ports []v1alpha1.PortStatus, resolvers []Resolver, standIn, lingers bool) (roles map[string]Role, requeueAfter time.Duration) {
	var after requeue.After
	takesClients := func(r Resolver) bool {
		return standIn && r.Ready && (r.ListensOn(ports) || !r.Reachable && r.Role == RoleReady)
	}
	replaced := !lingers && slices.ContainsFunc(resolvers, takesClients)
	roles = map[string]Role{}
	for _, r := range resolvers {
		after.AtMost(untilItListens(ports, r, standIn))
		switch {
		case takesClients(r):
			roles[r.UID] = RoleReady
		case r.Role == RoleNone:
		case !r.Reachable:
			if now.Sub(r.SilentSince) < LostAfter {
				roles[r.UID] = RoleTerminating
				after.AtMost(Linger)
			}
		case r.Sessions > 0 || r.Queued > 0:
			roles[r.UID] = RoleTerminating
			after.AtMost(Linger)
		default:
			// Clients still came until kube-proxy applied that it is not ready any more, and
			// this pass may not have seen them yet.
			since := r.SteppedDown
			switch {
			case replaced && r.Ends:
				since = time.Time{}
			case r.Role == RoleReady || since.IsZero():
				since = now
			}
			if left := times.Latest(r.LastActive, since).Add(Linger).Sub(now); left > 0 {
				roles[r.UID] = RoleTerminating
				after.AtMost(left)
			}
		}
	}
	return roles, time.Duration(after)
}

// Lingers reports whether clients may lose what they have just begun when an endpoint goes.
// Nodes keep the TCP connections of such an endpoint, and forget its UDP sessions. Those that
// may only use endpoints of their own go on using one that isn't ready, until the load balancer
// knows.
func Lingers(svc *corev1.Service, ports []v1alpha1.PortStatus) bool {
	return svc == nil || svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal ||
		ptr.Deref(svc.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal ||
		slices.ContainsFunc(ports, func(p v1alpha1.PortStatus) bool { return p.Protocol.Transport() != corev1.ProtocolTCP })
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

// Follow takes in the current slices, and sets each resolver's Role and SteppedDown. A resolver that
// is ready in any slice is ready.
func (s *SteppedDown) Follow(now time.Time, have []discoveryv1.EndpointSlice, resolvers []Resolver) {
	current := map[string]Role{}
	for _, slice := range have {
		for _, e := range slice.Endpoints {
			switch {
			case e.TargetRef == nil:
			case ptr.Deref(e.Conditions.Ready, true):
				current[string(e.TargetRef.UID)] = RoleReady
			case current[string(e.TargetRef.UID)] == RoleNone:
				current[string(e.TargetRef.UID)] = RoleTerminating
			}
		}
	}
	former := *s
	*s = nil
	for i := range resolvers {
		r := &resolvers[i]
		if r.Role = current[r.UID]; r.Role != RoleTerminating {
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
