package hold

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/query"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// dialLoop looks for a backend while clients wait, and releases all of them at once.
func (p *port) dialLoop() {
	defer utilruntime.HandleCrash()
	q := p.queue
	for {
		q.mu.Lock()
		if p.closed || len(p.waiting) == 0 {
			p.dialing = false
			q.mu.Unlock()
			return
		}
		now := time.Now()
		candidates := p.candidates(now)
		first := -1
		if len(candidates) > 0 {
			first = slices.IndexFunc(p.waiting, q.mayConnect)
			if p.addressAt.IsZero() && !p.paced {
				p.addressAt = now
			}
		}
		if first < 0 {
			wait := p.calm(now)
			q.mu.Unlock()
			p.pause(wait)
			continue
		}
		if wait := max(time.Until(p.notBefore), p.untilTurn(now)); wait > 0 {
			q.mu.Unlock()
			p.pause(wait)
			continue
		}
		// Those that wait for their turn need no proof for each that a backend is up.
		if (p.Network == route.UDP || p.probed || p.paced) && p.choose(now, p.anyUp()) >= 0 {
			p.release(netip.AddrPort{}, nil)
			continue
		}
		if p.probed {
			candidates = p.unproven(now)
		}
		if len(candidates) == 0 {
			wait := p.calm(now)
			q.mu.Unlock()
			p.pause(wait)
			continue
		}
		p.tries++
		tries, ticket, querier := p.tries, p.waiting[first], p.querier
		if p.refuted {
			querier = nil // a server that is ready need not answer queries
		}
		p.space(now, min(dialWidth, len(candidates)))
		q.mu.Unlock()
		if p.Network == route.UDP {
			p.tryDatagram(ticket, candidates[(tries-1)%len(candidates)])
		} else {
			p.tryDial(candidates, tries, querier)
		}
	}
}

// mayConnect reports whether a client may be connected. While a sleep is under way only a wake
// call that was made for the client keeps the backends from going away under it.
func (q *Queue) mayConnect(t *Ticket) bool {
	if q.behind() {
		return false
	}
	if t.seq <= q.approved {
		return true
	}
	// The operator's answer is newer than the route.
	down := q.lastResult.Outcome == wake.Accepted && q.lastResult.Phase == v1alpha1.PhaseAsleep
	return !q.route.AwaitsWake() && !down
}

// behind reports whether there is a sleep that the route doesn't have yet, nor the pods that are from
// before it: the operator reported one, or there may be one before a wake that it announced.
func (q *Queue) behind() bool {
	return !q.slept.IsZero() && !q.slept.Equal(q.route.LastSleep) || !q.unseen.IsZero()
}

// seeWake takes in that the route has the wake that was announced, and so each sleep before it.
func (q *Queue) seeWake() {
	if !q.unseen.IsZero() && q.unseen.Equal(q.route.LastWakeTime) {
		q.unseen, q.slept = time.Time{}, q.route.LastSleep
	}
}

// candidates are the addresses worth a dial: pods that neither terminate nor are full, and for
// UDP only those whose container runs, because nothing else answers.
func (p *port) candidates(now time.Time) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range p.backends {
		if s.Terminating || !s.hasRoom(now) || (p.Network == route.UDP && !s.Serving) {
			continue
		}
		out = append(out, s.Address)
	}
	return out
}

// unproven are the addresses worth a dial though there are probes: those whose game nobody asks,
// and those that serve where that was refuted.
func (p *port) unproven(now time.Time) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range p.backends {
		if !s.Terminating && s.hasRoom(now) && (s.Unasked || p.refuted && s.Serving) {
			out = append(out, s.Address)
		}
	}
	return out
}

// space sets when the next dials may be, after so many that are made at once.
func (p *port) space(now time.Time, dials int) {
	if p.quickUntil.IsZero() {
		p.quickUntil = now.Add(quickTime)
	}
	wait := dialPeriod
	switch quick := p.queue.opts.QuickDials; {
	case p.Network == route.UDP:
		wait = datagramPeriods[min(p.tries, len(datagramPeriods))-1]
	case quick != nil && now.Before(p.quickUntil) && quick.AllowN(now, dials):
		wait = quickPeriod
	}
	p.notBefore = now.Add(wait)
}

// calm is how long to wait for a change where nothing is usable: until an address that was left
// alone may be tried again, or until a backend may turn out to have room because a client that
// was released to it doesn't play.
func (p *port) calm(now time.Time) time.Duration {
	wait := time.Hour
	for _, s := range p.backends {
		if left := s.aside.Sub(now); left > 0 {
			wait = min(wait, left)
		}
		if s.load != nil && len(s.load.fresh) > 0 {
			wait = min(wait, max(0, s.load.fresh[0].Add(reportTime).Sub(now)))
		}
	}
	return wait
}

// release gives a backend to all that may be connected and whose turn it is. The first of them gets the connection
// that is already made. It is called with the queue's lock and releases it.
func (p *port) release(address netip.AddrPort, made *conn.Stream) {
	q := p.queue
	now := time.Now()
	if p.upAt.IsZero() && !p.paced {
		p.upAt = now
	}
	p.paced = false
	var out []*Ticket
	var releases []Release
	rest := p.waiting[:0]
	for i, t := range p.waiting {
		if !q.mayConnect(t) {
			rest = append(rest, t)
			continue
		}
		if p.untilTurn(now) > 0 {
			p.paced = true
			rest = append(rest, p.waiting[i:]...)
			break
		}
		g := Release{Address: address}
		// The backend that was found gets the first client, and the others their share.
		if len(out) == 0 && address.IsValid() {
			g.Conn = made
			if i := slices.IndexFunc(p.backends, func(s *backend) bool { return s.Address == address }); i >= 0 {
				g.Slot = p.backends[i].takeSlot(q, now)
			}
		} else if picked, ok := p.pick(now, p.anyUp()); ok {
			g = picked
		} else if !address.IsValid() || q.route.Balance != "" {
			rest = append(rest, t)
			continue
		}
		t.state = released
		p.takeTurn(t, now)
		out, releases = append(out, t), append(releases, g)
	}
	clear(p.waiting[len(rest):])
	p.waiting = rest
	q.waiting -= len(out)
	q.mu.Unlock()
	for i, t := range out {
		t.notify(Outcome{Release: releases[i]})
	}
	if len(out) == 0 && made != nil {
		_ = made.Close()
	}
}

// tryDial dials a few addresses at once; the first that answers is up. Where the protocol can
// query a backend it is queried first.
func (p *port) tryDial(candidates []netip.AddrPort, tries int, querier proto.Querier) {
	q := p.queue
	timeout := dialShort
	if tries%5 == 0 {
		timeout = dialLong
	}
	width := min(dialWidth, len(candidates))
	type dialled struct {
		address netip.AddrPort
		conn    *conn.Stream
	}
	found := make(chan dialled, width)
	ctx, cancel := context.WithCancel(q.ctx)
	for i := range width {
		address := candidates[((tries-1)*width+i)%len(candidates)]
		q.wg.Go(func() {
			defer utilruntime.HandleCrash()
			var made *conn.Stream
			var err error
			if querier != nil {
				err = p.ask(ctx, querier, address, timeout)
			}
			if err == nil {
				made, err = q.opts.Dial(ctx, address, timeout)
			}
			if err != nil {
				made = nil
			}
			found <- dialled{address, made}
		})
	}
	for i := range width {
		d := <-found
		if d.conn == nil {
			continue
		}
		cancel()
		if left := width - i - 1; left > 0 {
			q.wg.Go(func() {
				for range left {
					if late := <-found; late.conn != nil {
						_ = late.conn.Close()
					}
				}
			})
		}
		q.mu.Lock()
		p.reached(d.address)
		p.tries = 0
		if p.probed {
			p.notBefore = time.Time{} // those that come back set the next dial
		} else {
			p.notBefore = time.Now().Add(dialPeriod)
		}
		if q.route.Balance != "" && len(candidates) > 1 {
			// Being the first to answer is no reason to be chosen.
			_ = d.conn.Close()
			d.address, d.conn = netip.AddrPort{}, nil
		}
		p.release(d.address, d.conn)
		return
	}
	cancel()
}

// ask queries a backend, whose protocol can be, before it counts as up. The timeout doesn't
// bound that.
func (p *port) ask(ctx context.Context, querier proto.Querier, address netip.AddrPort, timeout time.Duration) error {
	q := p.queue
	q.mu.Lock()
	r := q.route
	q.mu.Unlock()
	return query.Backend(ctx, r, route.TCP, address, timeout, func(c net.Conn) error {
		answers, err := querier.Ask(c)
		if err == nil && q.opts.Learnt != nil {
			q.opts.Learnt(p.Name, answers)
		}
		return err
	})
}

// tryDatagram has one client's first datagram find out whether a backend is up.
func (p *port) tryDatagram(first *Ticket, address netip.AddrPort) {
	q := p.queue
	switch first.client.Try(q.ctx, address) {
	case Taken:
	case Spent:
		// The next client's turn comes at once.
		q.mu.Lock()
		p.tries, p.notBefore = max(0, p.tries-1), time.Time{}
		q.mu.Unlock()
		return
	case NotBound, Failed:
		return
	}
	q.mu.Lock()
	p.reached(address)
	p.tries = 0
	p.release(address, nil)
}

// pause waits for a time or until there is a reason to look again.
func (p *port) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.rouse:
	case <-p.queue.ctx.Done():
	}
}
