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

// Policy is how a port's clients are classified. It is never changed: a new version of the
// route, or of what was learnt from a backend, makes another.
type Policy struct {
	// Service is what the protocol gets to see of the service.
	Service proto.Service
	Rules   *guard.Rules
	// Classifies reports whether the protocol classifies clients. It doesn't where anything
	// wakes the service, nor while a backend is up to answer for itself.
	Classifies bool
	// ClassifiesQueries reports whether clients are classified though a backend is up, because
	// all of them go through the resolver: queries keep nothing awake.
	ClassifiesQueries bool
	// Aborts reports whether a held client that ends its side counts as gone.
	Aborts bool
	// MarksColdStarts reports whether the first response to a client that was held says so.
	MarksColdStarts bool
	// validatesAddress reports whether the protocol is asked only which clients must validate
	// their address.
	validatesAddress bool
}

// Policy is the current policy.
func (p *Port) Policy() *Policy { return p.policy.Load() }

// policyOf is the policy for a version of the route. Settings of the spec take precedence over
// what was learnt from a backend. The port is locked.
func (p *Port) policyOf(r *route.Route, port *route.Port) *Policy {
	answers := port.Answers
	if p.learnt != nil {
		answers = answers.Or(*p.learnt)
	}
	k := &Policy{
		Service: proto.Service{ID: idOf(r, port), Name: r.Service, Answers: answers, Probes: port.Probes, Page: port.Page, Players: port.Players, DownUntil: port.Guard.DownUntil},
		Rules:   &port.Guard, Aborts: port.AbortOnClose, MarksColdStarts: port.MarksColdStarts,
	}
	s := &k.Service
	switch r.Phase {
	case v1alpha1.PhaseAwake:
		s.Phase = proto.Up
		if !slices.ContainsFunc(port.Backends, usable) {
			// It was up, and will be again. Nobody can tell how long that takes.
			s.Phase = proto.Waking
		}
	case v1alpha1.PhaseWaking:
		s.Phase, s.Since = proto.Waking, r.PhaseSince
	case v1alpha1.PhaseAsleep, v1alpha1.PhaseFallingAsleep:
	}
	tells := p.Protocol.WakeOn() == proto.OnData && !port.WakeOnConnect
	k.Classifies = tells && s.Phase != proto.Up
	k.ClassifiesQueries = tells && s.Phase == proto.Up && r.Balance != ""
	if p.Can.AddressValidator != nil && port.WakeOnConnect {
		k.Classifies, k.validatesAddress = s.Phase != proto.Up, true
	}
	return k
}

// usable reports whether a pod may take new clients.
func usable(b route.Backend) bool { return b.Serving && !b.Terminating }

// idOf is an ID of a service's port that is the same on all resolvers.
func idOf(r *route.Route, p *route.Port) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(r.UID) + "/" + p.Name))
	return h.Sum64()
}

// Client describes the client that is being classified.
func (k *Policy) Client(source netip.AddrPort, scratch []byte) proto.Client {
	return proto.Client{Service: &k.Service, Source: source, Now: time.Now(), Scratch: scratch}
}

// Classify has the protocol classify a datagram.
func (k *Policy) Classify(p proto.Protocol, datagram []byte, c proto.Client) proto.Verdict {
	if k.validatesAddress {
		return p.(proto.AddressValidator).ValidateAddress(datagram, c)
	}
	return p.Inspect(datagram, c)
}

// IfDown is what the protocol would do with a client if no backend were up. After is how long
// the client must be silent for that to hold.
func (k *Policy) IfDown(p proto.Protocol, head []byte, source netip.AddrPort) (action proto.Action, after time.Duration) {
	scratch := conn.Streams.Get()
	defer conn.Streams.Put(scratch)
	v := p.Inspect(head, k.ClientIfDown(source, (*scratch)[:0]))
	return v.Action, v.After
}

// ClientIfDown is Client as it would be if no backend were up.
func (k *Policy) ClientIfDown(source netip.AddrPort, scratch []byte) proto.Client {
	c, service := k.Client(source, scratch), k.Service
	service.Phase, service.Players, service.DownUntil, c.Service = proto.Waking, nil, time.Time{}, &service
	return c
}

// Joins reports whether a client that sends this would be held if no backend were up.
func (p *Port) Joins(head []byte, source netip.AddrPort) bool {
	action, _ := p.Policy().IfDown(p.Protocol, head, source)
	return action == proto.Hold
}

// MayAnswer reports whether a datagram may be answered. Where the client's address is not
// validated the answer is no larger than the datagram, with few exceptions.
func (p *Port) MayAnswer(v proto.Verdict, datagram []byte, from netip.AddrPort) bool {
	if v.AddressValidated || len(v.Answer) <= len(datagram) {
		return true
	}
	return len(v.Answer) <= guard.MaxUnvalidated && p.Guard.Answer(p.Policy().Rules, from.Addr(), time.Now())
}
