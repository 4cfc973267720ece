package service

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// Key has the settings of a port that can't change while it is open. PortID is the port's own
// part of the service's queue.
type Key struct {
	hold.PortID
	Protocol v1alpha1.Protocol
	Number   int32
}

// KeyOf is the key of a route's port.
func KeyOf(p *route.Port) Key {
	return Key{PortID: hold.PortID{Name: p.Name, Network: p.Network}, Protocol: p.Protocol, Number: p.ResolverPort}
}

// Port is one service port at work.
type Port struct {
	*Service
	Key      Key
	Protocol proto.Protocol
	// Can has the protocol's abilities.
	Can proto.Abilities
	// Counts are the port's series.
	Counts *metrics.Port
	// Answers are backends' answers to queries; nil where the protocol can't give them again.
	Answers *Answers

	policy atomic.Pointer[Policy]

	// mu guards what was learnt from a backend, and which one was asked last; nil before the
	// first. Learning is set while one is being asked.
	mu       sync.Mutex
	learnt   *proto.Answers
	asked    *asked
	learning bool
	// gone is closed with the port.
	gone chan struct{}
	// filed is set while the port's file is counted.
	filed atomic.Bool
}

// NewPort makes a port of a service, with its policy.
func (s *Service) NewPort(r *route.Route, port *route.Port, protocol proto.Protocol) *Port {
	p := &Port{
		Service: s, Key: KeyOf(port), Protocol: protocol, Can: proto.AbilitiesOf(protocol), gone: make(chan struct{}),
		Counts: s.Metrics.Port(r.Namespace, r.Service, string(port.Protocol)),
	}
	if p.Can.Reteller != nil {
		p.Answers = &Answers{port: p}
	}
	p.Update(r, port)
	s.add(p)
	return p
}

// Update takes a new version of the route's port.
func (p *Port) Update(r *route.Route, port *route.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy.Store(p.policyOf(r, port))
	p.learn(port)
}

// Learnt is what was learnt from a backend.
func (p *Port) Learnt() proto.Answers {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.learnt == nil {
		return proto.Answers{}
	}
	return *p.learnt
}

// Close ends what the port does by itself. Whoever counted its file gives that back.
func (p *Port) Close() {
	p.remove(p)
	close(p.gone)
	p.Answers.close()
}

// Logger is the log with the port's name.
func (p *Port) Logger() logr.Logger {
	r := p.Route()
	return p.Log.WithValues("namespace", r.Namespace, "service", r.Service, "port", p.Key.Name, "resolverPort", p.Key.Number)
}

// HeadTime bounds how long a client may take to say what it wants, and to receive its answer.
func (p *Port) HeadTime() time.Duration {
	return cmp.Or(p.Route().Hold.Handshake, route.DefaultHandshake)
}

// leastHandshakes is how many clients may say what they want at once, even where fewer may be
// held.
const leastHandshakes = 100

// MaxHandshakes is how many TCP clients may say what they want, or be told why they are
// refused, at once.
func (p *Port) MaxHandshakes() int { return max(p.Route().Hold.MaxConnections, leastHandshakes) }

// Begin and End count a client that has a backend. One that is apart doesn't count for the
// service's Activity: it only queries, or the caller counts it there.
func (p *Port) Begin(apart bool) {
	if !apart {
		p.Active.Relayed.Add(1)
	}
	p.Sessions.Add(1)
	p.Counts.SessionBegun()
}

// End undoes Begin.
func (p *Port) End(apart bool) {
	if !apart {
		p.Active.Relayed.Add(-1)
	}
	p.Sessions.Add(-1)
	p.Counts.SessionEnded()
}
