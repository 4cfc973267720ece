// Package udp serves UDP clients. A client's life goes one way, and so do the calls:
//
//	receive  relay.go     a loop receives what the clients of a port send
//	admit    socket.go    may the sender have a session? query.go has it answered otherwise
//	hold     session.go   it waits in the service's queue, with what it sent
//	deliver  deliver.go   its backend gets what was held, as fast as pace.go lets it
//	relay    relay.go     loops pass datagrams on, both ways
//	end      session.go   what it took is given back; eviction.go: who makes room first
//
// A session has a goroutine from when it has a backend until that has accepted what was held.
// Before and after that the loops have it.
package udp

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
)

// Service is what a service's UDP ports have in common.
type Service struct {
	handover handover
	// strangers are the service's sessions that make room first.
	strangers strangers
}

// Routed takes in a new version of the route.
func (s *Service) Routed(sv *service.Service) { s.handover.follow(sv.Route().Direct) }

// Port is a service's UDP port.
type Port struct {
	*service.Port

	udp     *Service
	closing *ClosingSockets
	// socket is the port's socket, once it is open.
	socket atomic.Pointer[socket]
	// pace bounds how fast held datagrams are delivered.
	pace *pace
}

// NewPort makes a port.
func NewPort(p *service.Port, s *Service, closing *ClosingSockets) *Port {
	return &Port{Port: p, udp: s, closing: closing, pace: newPace()}
}

// EndLost ends the sessions whose backend is among those that were lost.
func (p *Port) EndLost(lost func(netip.AddrPort) bool) {
	for _, s := range p.sessions() {
		s.lose(lost)
	}
}

// Recheck looks again how long the sessions may be silent whose backend is among those that don't serve any more.
func (p *Port) Recheck(unserving func(netip.AddrPort) bool) {
	for _, s := range p.sessions() {
		s.mu.Lock()
		is := s.taken && unserving(s.from.Server())
		s.mu.Unlock()
		if is {
			s.checkIdle()
		}
	}
}

// sessions are the port's. Its socket may have those of earlier ports, too.
func (p *Port) sessions() []*session {
	u := p.socket.Load()
	if u == nil {
		return nil
	}
	return slices.DeleteFunc(u.all(), func(s *session) bool { return s.port != p })
}

// Opened reports whether the port has, or had, a socket, which counts the port's file.
func (p *Port) Opened() bool { return p.socket.Load() != nil }

// HasSessions reports whether the port has sessions, as a closed one may.
func (p *Port) HasSessions() bool {
	return len(p.sessions()) > 0
}

// Settled reports whether the port has sessions, and the loops have all of them.
func (p *Port) Settled() bool {
	u := p.socket.Load()
	if u == nil {
		return false
	}
	all := u.all()
	for _, s := range all {
		s.mu.Lock()
		taken := s.taken
		s.mu.Unlock()
		if !taken {
			return false
		}
	}
	return len(all) > 0
}
