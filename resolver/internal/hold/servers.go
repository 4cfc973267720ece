package hold

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// server is what is known of one address.
type server struct {
	route.Backend
	// up says that it took a connection or a datagram.
	up bool
	// trying says that a client finds out whether it is up.
	trying bool
	// aside is until when it is left alone.
	aside time.Time
	// pod are the addresses of the server's pod, this one among them.
	pod []*server
	// load is what the pod carries; nil where servers are not chosen by it.
	load *load
	// reached is when a client connected last, and suspect since when one could not that
	// heard nothing; zero when one could after that.
	reached atomic.Int64
	suspect time.Time
}

// update takes the addresses of a new version of the route.
func (p *port) update(now *route.Port) {
	p.ready = now.Probed
	p.probed = now.Probed && p.network == route.TCP
	servers := make([]*server, 0, len(now.Backends))
	changed := false
	for _, b := range now.Backends {
		i := slices.IndexFunc(p.servers, func(s *server) bool { return s.Address == b.Address })
		if i < 0 {
			servers = append(servers, &server{Backend: b})
			changed = true
			continue
		}
		s := p.servers[i]
		if s.Backend != b {
			changed = true
			// A container that starts or stops has another process behind the
			// address, and so has another pod.
			s.up = s.up && s.Pod == b.Pod && b.Serving && !b.Terminating
			s.aside = time.Time{}
		}
		s.Backend = b
		servers = append(servers, s)
	}
	changed = changed || len(servers) != len(p.servers)
	p.servers = servers
	p.group()
	if changed {
		p.tries = 0
		p.notBefore = time.Time{}
	}
	// The phase, too, may let somebody in.
	p.wake()
}

// group finds the addresses that are of one pod.
func (p *port) group() {
	pods := map[any][]*server{}
	key := func(s *server) any {
		if s.Pod == "" {
			return s.Address
		}
		return s.Pod
	}
	for _, s := range p.servers {
		pods[key(s)] = append(pods[key(s)], s)
	}
	for _, s := range p.servers {
		s.pod = pods[key(s)]
	}
}

// stands says that a pod is reached at this address of its two: a game may be
// bound to one of the families only. An address that is proven comes first, and
// else the first that nothing speaks against, which is the IPv4 one.
func (s *server) stands(now time.Time) bool {
	if len(s.pod) == 1 {
		return true
	}
	i := slices.IndexFunc(s.pod, func(o *server) bool { return o.up && !o.Terminating && !now.Before(o.aside) })
	if i < 0 {
		i = slices.IndexFunc(s.pod, func(o *server) bool { return !o.Terminating && !now.Before(o.aside) })
	}
	return i >= 0 && s.pod[i] == s
}

// usable says that a server may be given clients.
func (p *port) usable(s *server, anyUp bool, now time.Time) bool {
	switch {
	case s.Terminating || now.Before(s.aside) || !s.stands(now):
		return false
	case p.probed:
		return s.Serving
	case s.up:
		return true
	case !anyUp || !s.Serving:
		return false
	case p.network == route.UDP && !p.ready:
		// Datagrams that nobody takes are lost, and that a container runs says
		// little: one client at a time finds out.
		return !s.trying
	}
	// One server that took clients stands for the others that serve: who can't
	// connect comes back.
	return true
}

// anyUp says that a server took clients.
func (p *port) anyUp() bool {
	return slices.ContainsFunc(p.servers, func(s *server) bool { return s.up && !s.Terminating })
}

// find looks for a usable server; -1: there is none.
func (p *port) find(now time.Time, anyUp bool) int {
	for i := range p.servers {
		at := (p.next + i) % len(p.servers)
		if p.usable(p.servers[at], anyUp, now) {
			return at
		}
	}
	return -1
}

// choose looks for the server of the next client; -1: there is none. Servers are
// taken in turn, or by what they carry.
func (p *port) choose(now time.Time) int {
	policy := p.queue.route.Balance
	if policy == "" {
		return p.find(now, p.anyUp())
	}
	anyUp := p.anyUp()
	return Choose(policy, len(p.servers), p.next, func(i int) (Load, bool) {
		s := p.servers[i]
		if !p.usable(s, anyUp, now) {
			return Load{}, false
		}
		return s.load.at(now), true
	})
}

// pick gives the next client its server.
func (p *port) pick(now time.Time) (Grant, bool) {
	at := p.choose(now)
	if at < 0 {
		return Grant{}, false
	}
	p.next = (at + 1) % len(p.servers)
	s := p.servers[at]
	g := p.grantOf(s)
	g.Seat = s.sit(p.queue, now)
	return g, true
}

// grantOf gives a server to a client, without a seat.
func (p *port) grantOf(s *server) Grant {
	g := Grant{Address: s.Address, server: s}
	if p.network == route.UDP && !p.ready && !s.up {
		s.trying, g.Unproven = true, true
	}
	return g
}

// hasRoom says that a server may get another player.
func (s *server) hasRoom(now time.Time) bool { return s.load == nil || !s.load.at(now).Full() }

// candidates are the addresses worth a probe: pods that don't end and aren't full,
// and for UDP only those whose container runs, because nothing else answers.
func (p *port) candidates(now time.Time) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range p.servers {
		if s.Terminating || !s.hasRoom(now) || (p.network == route.UDP && !s.Serving) {
			continue
		}
		out = append(out, s.Address)
	}
	return out
}

// avoid leaves a server alone for a moment.
func (p *port) avoid(address netip.AddrPort) {
	for _, s := range p.servers {
		if s.Address == address {
			s.up, s.trying = false, false
			s.aside = time.Now().Add(asideFor)
		}
	}
}

// silent takes in that a client who began to connect then heard nothing of the server.
// Its packet may have been lost, in a burst with others' who began with it: the server
// is left alone once that happens again, and nobody else has connected meanwhile.
func (p *port) silent(s *server, began, now time.Time) {
	reached := time.Unix(0, s.reached.Load())
	if reached.After(s.suspect) {
		s.suspect = time.Time{}
	}
	switch {
	case reached.After(began):
	case s.suspect.IsZero():
		s.suspect = now
	case !began.Before(s.suspect):
		s.suspect = time.Time{}
		p.avoid(s.Address)
		if p.find(now, p.anyUp()) < 0 {
			s.aside = time.Time{} // there is no other
		}
	}
}

// failed takes in that a server that was granted could not be reached. Where
// there is no other it is tried again soon rather than left alone.
func (p *port) failed(address netip.AddrPort) {
	p.avoid(address)
	now := time.Now()
	if p.find(now, p.anyUp()) < 0 {
		for _, s := range p.servers {
			if s.Address == address {
				s.aside = time.Time{}
			}
		}
	}
	p.upAt = time.Time{}
	// One step for all who were granted it together.
	if p.notBefore.After(now) {
		return
	}
	wait := probePeriod
	if p.probed {
		// Nothing but the clients' own dials tells when it is up.
		p.tries++
		wait = min(probePeriod<<min(p.tries, 5), probeLong)
	}
	p.notBefore = now.Add(wait)
}

func (p *port) untried(address netip.AddrPort) {
	for _, s := range p.servers {
		if s.Address == address {
			s.trying = false
		}
	}
	p.wake()
}

func (p *port) reached(address netip.AddrPort) {
	for _, s := range p.servers {
		if s.Address == address {
			s.up, s.trying = true, false
			s.aside = time.Time{}
		}
	}
}
