package hold

import (
	"cmp"
	"slices"
	"time"

	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// PortID identifies a port of a queue. One that changes its transport is another port, though
// its name stays: a client that came by the former must not get a backend of the latter.
type PortID struct {
	Name    string
	Network route.Network
}

// port is one service port's part of a queue: its clients and its backends. The queue's lock
// guards it.
type port struct {
	PortID
	queue  *Queue
	counts *metrics.Port
	closed bool

	waiting []*Ticket
	// ready is set where the pods have a readiness probe, and probed where a backend is up once
	// Kubernetes reports it as serving.
	ready, probed bool
	// refuted is set once the only backend that probes say is up has refused a client: without a
	// probe of its own a game's pod is ready before the game listens. Only a connection shows then
	// that a backend is up.
	refuted  bool
	backends []*backend
	next     int
	// querier is what backends are queried with before they count as up; nil: they aren't.
	querier proto.Querier

	dialing bool
	// rouse makes the dialer look again.
	rouse chan struct{}
	// notBefore spaces the dials; tries counts those since the backends changed. Failures counts
	// how often since then clients came back from a backend.
	notBefore       time.Time
	tries, failures int
	// quickUntil is until when the dials are quick; zero: none has been made.
	quickUntil time.Time
	// addressAt and upAt are when the first client that waits now could have been sent to an
	// address, and to a backend that was up.
	addressAt, upAt time.Time
	// paced is set while clients wait for nothing but their turn. Those stages are known by then.
	paced bool
}

func newPort(q *Queue, r *route.Route, p *route.Port) *port {
	return &port{
		queue: q, PortID: PortID{p.Name, p.Network},
		counts: q.opts.Metrics.Port(r.Namespace, r.Service, string(p.Protocol)),
		rouse:  make(chan struct{}, 1),
	}
}

// wake makes the dialer look again. Where none runs the next one would begin with a look in vain.
func (p *port) wake() {
	select {
	case p.rouse <- struct{}{}:
	default:
	}
}

// insert adds a ticket to those that wait, in its place or, if it has none, as the last.
func (p *port) insert(t *Ticket) {
	if q := p.queue; t.place == 0 {
		q.lastPlace++
		t.place = q.lastPlace
	}
	at, _ := slices.BinarySearchFunc(p.waiting, t.place, func(other *Ticket, place uint64) int {
		return cmp.Compare(other.place, place)
	})
	p.waiting = slices.Insert(p.waiting, at, t)
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
	p.tries, p.failures, p.quickUntil = 0, 0, time.Time{}
	if p.upAt.IsZero() {
		return
	}
	now := time.Now()
	asked, address, up := q.called, p.addressAt, p.upAt
	if asked.IsZero() {
		asked = q.began
	}
	if address.Before(asked) {
		address = asked
	}
	if up.Before(address) {
		up = address
	}
	p.counts.Took(metrics.StageAddress, address.Sub(asked))
	p.counts.Took(metrics.StageUp, up.Sub(address))
	p.counts.Took(metrics.StageDelivered, now.Sub(p.upAt))
	p.counts.Took(metrics.StageTotal, now.Sub(q.began))
	p.addressAt, p.upAt = time.Time{}, time.Time{}
}
