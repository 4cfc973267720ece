// Package tcp serves TCP clients. A client's life goes one way, and so do the calls:
//
//	accept   port.go     a loop accepts, and gives the socket to a port or a front
//	         fastpath.go nobody needs to hear the client: connect and relay, in the loop
//	admit    front.go    at a front: whom does it want?
//	         admit.go    may it have a backend? proxyproto.go finds out where it is,
//	                     classify.go and query.go what it wants
//	hold     hold.go     it waits in the service's queue, patience.go keeps it waiting
//	deliver  deliver.go  connect to a backend, and replay what was held
//	relay    relay.go    loops move the bytes, follow.go ends idle connections of HTTP
//	end      client.go   what it took is given back
//
// The socket is the same from accept to relay, and a client has a goroutine of its own until
// it is relayed.
package tcp

import (
	"net/netip"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// parallelDials is how many of a service's held clients connect to backends at once.
const parallelDials = 128

// Service is what a service's TCP ports have in common.
type Service struct {
	// dials bounds how many held clients connect at once.
	dials   chan struct{}
	follows follows
}

// NewService makes one.
func NewService() *Service { return &Service{dials: make(chan struct{}, parallelDials)} }

// Port is a service's TCP port.
type Port struct {
	*service.Port
	classifier

	tcp *Service
	// unfollowed is how clients are relayed whom nothing follows; nil before the first.
	unfollowed atomic.Pointer[relay.Options]
}

// NewPort makes a port.
func NewPort(p *service.Port, s *Service) *Port {
	return &Port{Port: p, classifier: classifier{protocol: p.Protocol, counts: p.Counts, guard: &p.Guard, terms: p}, tcp: s}
}

// Open opens the port.
func (p *Port) Open() (listener.Socket, error) {
	return listener.OpenTCP(p.Host, int(p.Key.Number), func(on *loop.Loop, fd int, from netip.AddrPort) {
		if !p.fastPath(on, fd, from) {
			p.accept(on, fd, from)
		}
	})
}

// Routed takes in a new version of the route.
func (s *Service) Routed(sv *service.Service) { s.endIdle(sv) }

// accept serves a client in a goroutine of its own.
func (p *Port) accept(on *loop.Loop, fd int, from netip.AddrPort) {
	c, err := conn.NewStream(on.Near(), fd)
	if err != nil {
		return
	}
	p.Running.Go(func() {
		defer utilruntime.HandleCrash()
		p.serve(newClient(p.Shared, c, from))
	})
}

// serve serves a client of the port until it is relayed or gone.
func (p *Port) serve(c *Client) {
	p.Counts.ClientTaken()
	p.Wanted(c.line)
	proxy := &p.Route().Proxy
	c.announced = proxy.Send
	if !p.introduce(c, proxy) {
		c.end()
		return
	}
	p.advance(c, p.Policy().Rules)
}

// advance takes a client through its life: from its first bytes, part of which may have been
// read already, until it is relayed or gone.
func (p *Port) advance(c *Client, rules *guard.Rules) {
	switch a := p.admit(c, rules); a.decision {
	case relayed:
		p.relay(c, a.server)
	case relayedAsQuery:
		p.relayQuery(c, a.server)
	case held:
		p.hold(c, a.ticket)
	case done:
		c.end()
	}
}
