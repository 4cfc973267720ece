package dataplane

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// known is what a port's clients are judged by. It is never changed.
type known struct {
	service proto.Service
	// judges says that the protocol is asked what clients want: not where anything
	// wakes the service, and not while a server is up that can be asked itself.
	judges bool
	// proves says that it is only asked who must prove where it is.
	proves bool
	rules  *guard.Rules
	// sorts says that a server is up and that clients are told apart all the same,
	// because all of them go through the resolver: who only asks keeps nothing awake.
	sorts bool
	// aborts says that a client who ends its side while it waits is gone.
	aborts bool
}

// knownOf is what is known with a version of the route: what the spec says comes
// before what a server told. It is called with the server's lock.
func (p *servedPort) knownOf(r *route.Route, port *route.Port) *known {
	k := &known{service: proto.Service{ID: idOf(r, port), Name: r.Service, Answers: port.Answers.Or(p.told), Probes: port.Probes, Players: port.Players}, rules: &port.Guard}
	s := &k.service
	k.aborts = port.AbortOnClose
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
	tells := p.protocol.WakeOn() == proto.OnData && !port.WakeOnConnect
	k.judges = tells && s.Phase != proto.Up
	k.sorts = tells && s.Phase == proto.Up && r.Balance != ""
	if _, can := p.protocol.(proto.Prover); can && port.WakeOnConnect {
		k.judges, k.proves = s.Phase != proto.Up, true
	}
	return k
}

// usable says that a pod may take new clients.
func usable(b route.Backend) bool { return b.Serving && !b.Terminating }

// idOf is a number that a service's port has on all resolvers.
func idOf(r *route.Route, p *route.Port) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(r.UID) + "/" + p.Name))
	return h.Sum64()
}

// judge asks the protocol what a datagram is.
func (p *servedPort) judgeDatagram(k *known, datagram []byte, c proto.Client) proto.Verdict {
	if k.proves {
		return p.protocol.(proto.Prover).Prove(datagram, c)
	}
	return p.protocol.Inspect(datagram, c)
}

// client is who asks now.
func (k *known) client(source netip.AddrPort, scratch []byte) proto.Client {
	return proto.Client{Service: &k.service, Source: source, Now: time.Now(), Scratch: scratch}
}
