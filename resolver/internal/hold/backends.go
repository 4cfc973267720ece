package hold

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// backend is the state of one backend's address.
type backend struct {
	route.Backend
	// up is set once it took a connection or a datagram.
	up bool
	// trying is set while a client finds out whether it is up.
	trying bool
	// aside is the time until which it is left alone.
	aside time.Time
	// pod has the addresses of the backend's pod, this one among them.
	pod []*backend
	// load is the pod's load; nil where backends are not chosen by it.
	load *load
	// reached is when a client last connected. Suspect is since when one could not, and heard
	// nothing; zero once one could after that.
	reached atomic.Int64
	suspect time.Time
}

// update takes the addresses of a new version of the route.
func (p *port) update(now *route.Port) {
	p.ready = now.Probed
	p.probed = now.Probed && p.Network == route.TCP
	p.querier = nil
	if !now.ByConnect {
		p.querier = proto.AbilitiesOf(p.queue.opts.Protocols[now.Protocol]).Querier
	}
	before := make(map[netip.AddrPort]*backend, len(p.backends))
	for _, s := range p.backends {
		before[s.Address] = s
	}
	backends := make([]*backend, 0, len(now.Backends))
	changed := false
	for _, b := range now.Backends {
		s := before[b.Address]
		if s == nil {
			backends = append(backends, &backend{Backend: b})
			changed = true
			continue
		}
		if s.Backend != b {
			changed = true
			// A container that starts or stops has another process behind the
			// address, and so has another pod.
			s.up = s.up && s.Pod == b.Pod && b.Serving && !b.Terminating
			s.aside = time.Time{}
		}
		s.Backend = b
		backends = append(backends, s)
	}
	changed = changed || len(backends) != len(p.backends)
	p.backends = backends
	p.group()
	if changed {
		p.tries, p.failures = 0, 0
		p.notBefore, p.quickUntil = time.Time{}, time.Time{}
		p.refuted = false
	}
	if p.dialing {
		p.wake() // a change of the phase, too, may let clients in
	}
}

// group finds the addresses of one pod.
func (p *port) group() {
	pods := map[any][]*backend{}
	key := func(s *backend) any {
		if s.Pod == "" {
			return s.Address
		}
		return s.Pod
	}
	for _, s := range p.backends {
		pods[key(s)] = append(pods[key(s)], s)
	}
	for _, s := range p.backends {
		s.pod = pods[key(s)]
	}
}

// stands reports whether a pod is reached at this one of its two addresses: a game may be bound
// to one family only. An address that is up comes first, and else the first without a failure,
// which is the IPv4 one.
func (s *backend) stands(now time.Time) bool {
	if len(s.pod) == 1 {
		return true
	}
	i := slices.IndexFunc(s.pod, func(o *backend) bool { return o.up && !o.Terminating && !now.Before(o.aside) })
	if i < 0 {
		i = slices.IndexFunc(s.pod, func(o *backend) bool { return !o.Terminating && !now.Before(o.aside) })
	}
	return i >= 0 && s.pod[i] == s
}

// usable reports whether a backend may be given clients.
func (p *port) usable(s *backend, anyUp bool, now time.Time) bool {
	switch {
	case s.Terminating || now.Before(s.aside) || !s.stands(now):
		return false
	case p.probed && !p.refuted:
		return s.Serving || s.Unasked && s.up
	case s.up:
		return true
	case !anyUp || !s.Serving:
		return false
	case p.Network == route.UDP && !p.ready:
		// Datagrams that nothing receives are lost, and a running container does not mean that
		// its port is bound: one client at a time finds out.
		return !s.trying
	}
	// One backend that took clients is evidence for the others that serve: a client that can't
	// connect comes back.
	return true
}

// anyUp reports whether a backend took clients.
func (p *port) anyUp() bool {
	return slices.ContainsFunc(p.backends, func(s *backend) bool { return s.up && !s.Terminating })
}

// find looks for a usable backend; -1: there is none.
func (p *port) find(now time.Time, anyUp bool) int {
	for i := range p.backends {
		at := (p.next + i) % len(p.backends)
		if p.usable(p.backends[at], anyUp, now) {
			return at
		}
	}
	return -1
}

// choose looks for the backend of the next client; -1: there is none. Backends are chosen in
// turn, or by their load.
func (p *port) choose(now time.Time, anyUp bool) int {
	policy := p.queue.route.Balance
	if policy == "" {
		return p.find(now, anyUp)
	}
	return Choose(policy, len(p.backends), p.next, func(i int) (Load, bool) {
		s := p.backends[i]
		if !p.usable(s, anyUp, now) {
			return Load{}, false
		}
		return s.load.at(now), true
	})
}

// pick gives the next client its backend.
func (p *port) pick(now time.Time, anyUp bool) (Release, bool) {
	at := p.choose(now, anyUp)
	if at < 0 {
		return Release{}, false
	}
	p.next = (at + 1) % len(p.backends)
	s := p.backends[at]
	g := p.releaseTo(s)
	g.Slot = s.takeSlot(p.queue, now)
	return g, true
}

// releaseTo gives a backend to a client, without a slot.
func (p *port) releaseTo(s *backend) Release {
	g := Release{Address: s.Address, backend: s}
	if p.Network == route.UDP && !p.ready && !s.up {
		s.trying, g.Unproven = true, true
	}
	return g
}

// hasRoom reports whether a backend may get another player.
func (s *backend) hasRoom(now time.Time) bool { return s.load == nil || !s.load.at(now).Full() }

// avoid leaves a backend alone for asideFor.
func (p *port) avoid(address netip.AddrPort) {
	for _, s := range p.backends {
		if s.Address == address {
			s.up, s.trying = false, false
			s.aside = time.Now().Add(asideFor)
		}
	}
}

// refuse takes in that a backend refused a client. If there is no other, readiness probes are not
// relied on until one has taken a connection.
func (p *port) refuse(address netip.AddrPort) {
	p.avoid(address)
	has := slices.ContainsFunc(p.backends, func(s *backend) bool { return s.Address == address })
	if has && p.probed && p.find(time.Now(), p.anyUp()) < 0 {
		p.refuted = true
	}
}

// silent takes in that a client, who began to connect at began, heard nothing of the backend.
// Its packet may have been lost in a burst. So the backend is left alone only if that happens
// again, and nobody else has connected meanwhile.
func (p *port) silent(s *backend, began, now time.Time) {
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

// failed takes in that a backend that clients were released to could not be reached. If there
// is no other it is tried again rather than left alone.
func (p *port) failed(address netip.AddrPort) {
	p.refuse(address)
	now := time.Now()
	if p.find(now, p.anyUp()) < 0 {
		for _, s := range p.backends {
			if s.Address == address {
				s.aside = time.Time{}
			}
		}
	}
	if !p.upAt.IsZero() {
		// Nobody was delivered. So it is not known yet when a backend was up.
		p.upAt, p.paced = time.Time{}, false
	}
	// One step counts for all that were released to it together.
	if p.notBefore.After(now) {
		return
	}
	wait := dialPeriod
	if p.probed {
		// Each that takes connections and none of what was held would get all that wait again.
		wait = min(dialPeriod<<min(p.failures, 5), dialLong)
	}
	p.failures++
	p.notBefore = now.Add(wait)
}

func (p *port) untried(address netip.AddrPort) {
	for _, s := range p.backends {
		if s.Address == address {
			s.trying = false
		}
	}
	p.wake()
}

func (p *port) reached(address netip.AddrPort) {
	for _, s := range p.backends {
		if s.Address == address {
			s.up, s.trying = true, false
			s.aside = time.Time{}
		}
	}
	p.refuted = false
}
