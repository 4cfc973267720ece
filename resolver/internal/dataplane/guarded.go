package dataplane

import (
	"cmp"
	"math"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// spareFiles are left for all that is neither a client, nor its server, nor a port.
const spareFiles = 1024

// leastHandshakes is how many clients may say what they want at once, though fewer
// may be held.
const leastHandshakes = 100

// frontHandshakes is how many may say by which name they want whom.
const frontHandshakes = 1000

// What a client takes of the files that the process may open, its server's included.
const (
	filesOfTCP = 2
	filesOfUDP = 1
)

// maxFiles is how many files clients may have open.
func maxFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return spareFiles
	}
	return max(int(min(limit.Cur, math.MaxInt32))-spareFiles, spareFiles) //nolint:gosec // bounded
}

// takeSession takes a UDP session's place; false: there is none for the service.
func (sv *service) takeSession() bool {
	if !sv.server.udpSessions.Take(&sv.udpSessions, 1) {
		return false
	}
	if !sv.server.files.Take(&sv.files, filesOfUDP) {
		sv.server.udpSessions.Force(&sv.udpSessions, -1)
		return false
	}
	return true
}

// forceSession takes one even where there is none, or gives it back.
func (sv *service) forceSession(n int32) {
	sv.server.udpSessions.Force(&sv.udpSessions, n)
	sv.server.files.Force(&sv.files, n*filesOfUDP)
}

// enter begins a client's stay, once it is known where it comes from. What was read
// for that is its source's from now on.
func (p *servedPort) enter(h *heldTCP, rules *guard.Rules) bool {
	all := p.service.server.held
	if h.local {
		rules = noRules
	}
	visit, ok := p.visit(h.line, h.source.Addr(), rules)
	if !ok {
		return false
	}
	h.visit = visit
	if kept := visit.Budget(all); kept != all {
		all.Give(len(h.sent))
		kept.Force(len(h.sent))
		h.budget = kept
		h.reader.Charge(kept)
	}
	return true
}

// noRules are for a load balancer's own connections.
var noRules = &guard.Rules{}

// visit begins a client's stay. Its end gives the files back.
func (p *servedPort) visit(l *accesslog.Line, from netip.Addr, rules *guard.Rules) (v guard.Visit, ok bool) {
	reason := proto.TooManyConnections
	if p.service.server.files.Take(&p.service.files, filesOfTCP) {
		if v, reason = p.service.guard.Enter(rules, from, p.service.server.held); reason == "" {
			return v, true
		}
		p.service.server.files.Force(&p.service.files, -filesOfTCP)
	}
	p.refuse(l, reason)
	return v, false
}

// leave ends the stay. What is kept of the client is given back before: it is the
// source's.
func (p *servedPort) leave(h *heldTCP) {
	h.release(len(h.sent))
	h.visit.Leave()
	p.service.server.files.Force(&p.service.files, -filesOfTCP)
}

// headTime bounds how long a client may take to say what it wants, and to take in
// what it is answered.
func (p *servedPort) headTime() time.Duration {
	if p.service == nil {
		return route.DefaultHandshake
	}
	return cmp.Or(p.service.route.Load().Hold.Handshake, route.DefaultHandshake)
}

// handshake lets a client say what it wants; false: it doesn't want the service, or
// may not have it.
func (p *servedPort) handshake(h *heldTCP) bool {
	switch reason := h.visit.Hold(); reason {
	case "":
	case proto.Denied:
		p.deny(h)
		return false
	default:
		p.refuse(h.line, reason)
		return false
	}
	defer p.occupy(h).End()
	return p.inspect(h)
}

// occupy takes a client's place among those that have no other. Where there is none
// the oldest of them is closed.
func (p *servedPort) occupy(h *heldTCP) guard.Handshake {
	most := frontHandshakes
	if p.service != nil {
		most = max(p.service.route.Load().Hold.MaxConnections, leastHandshakes)
	}
	place, evicted := p.guard.Handshake(h.conn, most)
	if evicted {
		p.counts.Refused(string(proto.Evicted))
	}
	return place
}

// mayAsk says that a client may wake the service or wait for it.
func (p *servedPort) mayAsk(h *heldTCP) bool {
	switch reason := h.visit.Ask(time.Now()); reason {
	case "":
		return true
	case proto.Denied:
		p.deny(h)
	default:
		p.refuse(h.line, reason)
		p.farewell(h, reason)
	}
	return false
}

// deny turns away a client that may not wake the service. One of HTTP is told so once
// it has asked for something; others are closed unread.
func (p *servedPort) deny(h *heldTCP) {
	if _, is := p.protocol.(http1.Protocol); is {
		if reason := h.visit.Hear(); reason != "" {
			p.refuse(h.line, reason)
			return
		}
		if _, heard := p.asks(h); !heard {
			return
		}
	}
	p.refuse(h.line, proto.Denied)
	p.farewell(h, proto.Denied)
}

// mayAsk says that a new session's client may wake the service or wait for it.
func (s *udpSession) mayAsk() bool {
	s.mu.Lock()
	reason := s.visit.Ask(time.Now())
	s.mu.Unlock()
	if reason == "" {
		return true
	}
	s.port.counts.Refused(string(reason))
	s.Refused(reason)
	return false
}

// mayBeAnswered says that a datagram may be given an answer. One that goes to who may
// not be where it says is no larger than what it answers, but for a few.
func (p *servedPort) mayBeAnswered(k *known, v proto.Verdict, datagram []byte, from netip.AddrPort) bool {
	if v.Proven || len(v.Answer) <= len(datagram) {
		return true
	}
	return len(v.Answer) <= guard.MaxUnproven && p.service.guard.Answer(k.rules, from.Addr(), time.Now())
}
