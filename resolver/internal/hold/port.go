package hold

import (
	"net/netip"
	"slices"
	"time"

	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// port is one service port's part of a queue: who waits for it, and what is
// known of its servers. The queue's lock guards it.
type port struct {
	queue   *Queue
	name    string
	network route.Network
	counts  *metrics.Port
	closed  bool

	waiting []*Ticket
	// probed says that Kubernetes' word for a server being up is enough.
	probed  bool
	servers []*server
	next    int

	probing bool
	// rouse makes the prober look again.
	rouse chan struct{}
	// notBefore spaces the probes; tries counts those since the servers changed.
	notBefore time.Time
	tries     int
	// addressAt and upAt are when the first client that waits now could have
	// been sent to an address, and to a server that was up.
	addressAt, upAt time.Time
}

// server is what is known of one address.
type server struct {
	route.Backend
	// up says that it took a connection or a datagram.
	up bool
	// aside is until when it is left alone.
	aside time.Time
}

func newPort(q *Queue, r *route.Route, p *route.Port) *port {
	return &port{
		queue: q, name: p.Name, network: p.Network,
		counts: q.opts.Metrics.Port(r.Namespace, r.Service, string(p.Protocol)),
		rouse:  make(chan struct{}, 1),
	}
}

// update takes the addresses of a new version of the route.
func (p *port) update(_ *route.Route, now *route.Port) {
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
			// address.
			s.up = s.up && b.Serving && !b.Terminating
			s.aside = time.Time{}
		}
		s.Backend = b
		servers = append(servers, s)
	}
	changed = changed || len(servers) != len(p.servers)
	p.servers = servers
	if changed {
		p.tries = 0
		p.notBefore = time.Time{}
	}
	// The phase, too, may let somebody in.
	p.wake()
}

// wake makes the prober look again.
func (p *port) wake() {
	select {
	case p.rouse <- struct{}{}:
	default:
	}
}

// usable says that a server may be given clients without a probe. One that took
// clients stands for the others whose containers run.
func (p *port) usable(s *server, anyUp bool, now time.Time) bool {
	if s.Terminating || now.Before(s.aside) {
		return false
	}
	if p.probed {
		return s.Serving
	}
	return s.up || (anyUp && s.Serving)
}

// pick takes the usable servers in turn.
func (p *port) pick(now time.Time) (netip.AddrPort, bool) {
	anyUp := slices.ContainsFunc(p.servers, func(s *server) bool { return s.up && !s.Terminating })
	for i := range p.servers {
		s := p.servers[(p.next+i)%len(p.servers)]
		if p.usable(s, anyUp, now) {
			p.next = (p.next + i + 1) % len(p.servers)
			return s.Address, true
		}
	}
	return netip.AddrPort{}, false
}

// candidates are the addresses worth a probe: pods that don't end, and for UDP
// only those whose container runs, because nothing else answers.
func (p *port) candidates() []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range p.servers {
		if s.Terminating || (p.network == route.UDP && !s.Serving) {
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
			s.up = false
			s.aside = time.Now().Add(asideFor)
		}
	}
}

// failed takes in that a server that was granted could not be reached. Where
// there is no other it is tried again soon rather than left alone.
func (p *port) failed(address netip.AddrPort) {
	now := time.Now()
	for _, s := range p.servers {
		if s.Address == address {
			s.up = false
			s.aside = now.Add(asideFor)
			if _, other := p.pick(now); !other {
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

func (p *port) reached(address netip.AddrPort) {
	for _, s := range p.servers {
		if s.Address == address {
			s.up = true
			s.aside = time.Time{}
		}
	}
}

// take removes a ticket from those that wait.
func (p *port) take(t *Ticket) {
	if i := slices.Index(p.waiting, t); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}

// delivered notes the stages of the first delivery since clients began to wait.
func (p *port) delivered() {
	q := p.queue
	p.tries = 0
	if p.upAt.IsZero() {
		return
	}
	now := time.Now()
	asked := q.called
	if asked.IsZero() {
		asked = q.began
	}
	address := maxTime(p.addressAt, asked)
	p.counts.Took(metrics.StageAddress, address.Sub(asked))
	p.counts.Took(metrics.StageUp, maxTime(p.upAt, address).Sub(address))
	p.counts.Took(metrics.StageDelivered, now.Sub(p.upAt))
	p.counts.Took(metrics.StageTotal, now.Sub(q.began))
	p.addressAt, p.upAt = time.Time{}, time.Time{}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
