package service

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// Policy is what a port's clients are classified by. It is never changed: a new version of
// the route, or of what a backend told, makes another.
type Policy struct {
	// Service is what the protocol may know.
	Service proto.Service
	Rules   *guard.Rules
	// Classifies reports whether the protocol is asked what clients want: not where anything
	// wakes the service, and not while a backend is up that can be asked itself.
	Classifies bool
	// SortsQueries reports whether a backend is up and clients are told apart all the same,
	// because all of them go through the resolver: who only asks keeps nothing awake.
	SortsQueries bool
	// Aborts reports whether a client who ends its side while it is held is gone.
	Aborts bool
	// proves reports whether the protocol is only asked who must prove where it is.
	proves bool
}

// Policy is the one of now.
func (p *Port) Policy() *Policy { return p.policy.Load() }

// policyOf is the policy with a version of the route: what the spec says comes before what
// a backend told. The port is locked.
func (p *Port) policyOf(r *route.Route, port *route.Port) *Policy {
	k := &Policy{
		Service: proto.Service{ID: idOf(r, port), Name: r.Service, Answers: port.Answers.Or(p.told), Probes: port.Probes, Players: port.Players},
		Rules:   &port.Guard, Aborts: port.AbortOnClose,
	}
	s := &k.Service
	switch r.Phase {
	case v1alpha1.PhaseAwake:
		s.Phase = proto.Up
		if !slices.ContainsFunc(port.Backends, usable) {
			// It was up, and will be again. How long that takes nobody can tell.
			s.Phase = proto.Waking
		}
	case v1alpha1.PhaseWaking:
		s.Phase, s.Since = proto.Waking, r.PhaseSince
	case v1alpha1.PhaseAsleep, v1alpha1.PhaseFallingAsleep:
	}
	tells := p.Protocol.WakeOn() == proto.OnData && !port.WakeOnConnect
	k.Classifies = tells && s.Phase != proto.Up
	k.SortsQueries = tells && s.Phase == proto.Up && r.Balance != ""
	if p.Can.Prover != nil && port.WakeOnConnect {
		k.Classifies, k.proves = s.Phase != proto.Up, true
	}
	return k
}

// usable reports whether a pod may take new clients.
func usable(b route.Backend) bool { return b.Serving && !b.Terminating }

// idOf is a number that a service's port has on all resolvers.
func idOf(r *route.Route, p *route.Port) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(r.UID) + "/" + p.Name))
	return h.Sum64()
}

// Client is who asks now.
func (k *Policy) Client(source netip.AddrPort, scratch []byte) proto.Client {
	return proto.Client{Service: &k.Service, Source: source, Now: time.Now(), Scratch: scratch}
}

// Classify asks the protocol what a datagram is.
func (k *Policy) Classify(p proto.Protocol, datagram []byte, c proto.Client) proto.Verdict {
	if k.proves {
		return p.(proto.Prover).Prove(datagram, c)
	}
	return p.Inspect(datagram, c)
}

// IfDown asks the protocol what it would make of a client if no backend were up. After is
// how long the client must say nothing more for that to hold.
func (k *Policy) IfDown(p proto.Protocol, head []byte, source netip.AddrPort) (action proto.Action, after time.Duration) {
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	c, service := k.Client(source, (*scratch)[:0]), k.Service
	service.Phase, service.Players, c.Service = proto.Waking, nil, &service
	v := p.Inspect(head, c)
	return v.Action, v.After
}

// Joins reports whether whoever says that would be held, if no backend were up.
func (p *Port) Joins(head []byte, source netip.AddrPort) bool {
	action, _ := p.Policy().IfDown(p.Protocol, head, source)
	return action == proto.Hold
}

// MayAnswer reports whether a datagram may be given an answer. One that goes to who may not
// be where it says is no larger than what it answers, but for a few.
func (p *Port) MayAnswer(v proto.Verdict, datagram []byte, from netip.AddrPort) bool {
	if v.Proven || len(v.Answer) <= len(datagram) {
		return true
	}
	return len(v.Answer) <= guard.MaxUnproven && p.Guard.Answer(p.Policy().Rules, from.Addr(), time.Now())
}
