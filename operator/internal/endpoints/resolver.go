package endpoints

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/times"
)

// Resolver is one resolver pod, with what it reported about one ElasticService.
type Resolver struct {
	UID       string
	PodName   string
	Namespace string
	Node      string
	Addresses []string
	// Ready reports whether the pod is ready and not being deleted.
	Ready bool
	// Ends reports whether the pod is being deleted.
	Ends bool
	// FirstAsked is when this process first asked the pod.
	FirstAsked time.Time
	// Reachable reports whether the pod answered.
	Reachable bool
	// SilentSince is since when it has not answered.
	SilentSince time.Time
	// Err is why it did not answer.
	Err error
	// Phase is the ElasticService's phase as the pod has it.
	Phase string
	// Listening holds the resolver ports on which it takes clients.
	Listening map[int32]bool
	// PortErrors are why it does not take clients on other ports.
	PortErrors []string
	Sessions   int32
	Queued     int32
	// Unvalidated is how many of Sessions keep no service awake, since their clients may not
	// exist.
	Unvalidated int32
	// LastActive is when it last had a client; zero when it never had.
	LastActive time.Time
	// Started is when it began to take clients.
	Started time.Time
	// Role is the role of its endpoint in the slices as they are, before any is written.
	Role Role
	// SteppedDown is since when its endpoint has been terminating, as far as this process
	// knows; zero when it isn't.
	SteppedDown time.Time
}

// ListensOn reports whether the pod takes clients on every port.
func (r Resolver) ListensOn(ports []v1alpha1.PortStatus) bool {
	for _, p := range ports {
		if !r.Listening[p.ResolverPort] {
			return false
		}
	}
	return len(ports) > 0
}

// ResolverOf combines the pod as the API server has it with its own report about a service.
func ResolverOf(pod *corev1.Pod, es *v1alpha1.ElasticService, v resolvers.View) Resolver {
	r := NewResolver(pod, v)
	if route, ok := v.Routes[string(es.UID)]; ok {
		// A pod that lags far behind may have the same phase from an earlier time.
		if since := route.PhaseSince; since == nil || since.Equal(times.Micro(es.Status.PhaseSince)) {
			r.Phase = route.Phase
		}
		for _, p := range route.Ports {
			if p.Listening {
				r.Listening[p.Port] = true
			} else if p.Error != "" && !p.Front {
				r.PortErrors = append(r.PortErrors, fmt.Sprintf("port %d: %s", p.Port, p.Error))
			}
		}
	}
	if s, ok := v.Sessions[string(es.UID)]; ok {
		r.Sessions, r.Queued, r.Unvalidated = s.Sessions, s.Queued, s.Unvalidated
		if !s.LastActive.IsZero() {
			r.LastActive = s.LastActive.Add(v.ClockSkew)
		}
	}
	return r
}

// NewResolver is a resolver pod without any report yet.
func NewResolver(pod *corev1.Pod, v resolvers.View) Resolver {
	r := Resolver{
		UID:         string(pod.UID),
		PodName:     pod.Name,
		Namespace:   pod.Namespace,
		Node:        pod.Spec.NodeName,
		Ready:       podstatus.Ready(pod) && pod.DeletionTimestamp.IsZero(),
		Ends:        !pod.DeletionTimestamp.IsZero(),
		FirstAsked:  v.FirstAsked,
		Reachable:   v.Err == nil,
		SilentSince: times.Latest(v.Answered, v.FirstAsked, pod.CreationTimestamp.Time),
		Err:         v.Err,
		Listening:   map[int32]bool{},
		Started:     v.Started.Add(v.ClockSkew),
	}
	for _, ip := range pod.Status.PodIPs {
		r.Addresses = append(r.Addresses, ip.IP)
	}
	return r
}

// AddFront takes in a resolver's report about one of a front's ElasticServices.
func (r *Resolver) AddFront(v resolvers.View, uid string) {
	for _, p := range v.Routes[uid].Ports {
		switch {
		case !p.Front:
		case p.Listening:
			r.Listening[p.Port] = true
		case p.Error != "" && len(r.PortErrors) == 0: // each has the same
			r.PortErrors = []string{fmt.Sprintf("port %d: %s", p.Port, p.Error)}
		}
	}
	if s, ok := v.Sessions[uid]; ok {
		r.Sessions, r.Queued = r.Sessions+s.Sessions, r.Queued+s.Queued
		if !s.LastActive.IsZero() {
			r.LastActive = times.Latest(r.LastActive, s.LastActive.Add(v.ClockSkew))
		}
	}
}

// AnyEligible reports whether some resolver can stand in for these ports.
func AnyEligible(ports []v1alpha1.PortStatus, resolvers []Resolver) bool {
	for _, r := range resolvers {
		if r.Ready && r.Reachable && r.ListensOn(ports) {
			return true
		}
	}
	return false
}

// AnyListens reports whether some resolver takes a front's clients.
func AnyListens(front *v1alpha1.FrontStatus, resolvers []Resolver) bool {
	for _, r := range resolvers {
		if r.Ready && r.Reachable && r.Listening[front.ResolverPort] {
			return true
		}
	}
	return false
}
