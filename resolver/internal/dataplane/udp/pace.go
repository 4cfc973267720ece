package udp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Held datagrams of many sessions, delivered all at once, would overflow the receive buffer of
// a backend that has just begun to read: Linux gives a socket room for some 270 small
// datagrams. So a port delivers them one session after the other, a few ahead of the answers of
// the backend. A backend that answers gets as much as it reads, and one that is busy gets
// little meanwhile. Backends that don't answer are given time instead.
const (
	// paceWindow is how far held datagrams go ahead of the backend's answers.
	paceWindow = 64
	// paceStep is how often a session that waits for answers looks for them.
	paceStep = time.Millisecond

	// silentRate is how many datagrams a second go out beyond the window. From a number of
	// clients on it grows with those that wait. Otherwise what they send meanwhile would keep
	// them waiting for ever.
	silentRate          = 1000
	silentRatePerClient = 100
	silentRateMax       = 8000
	// silentBurst makes up for a step that took long.
	silentBurst = 16
	// paceMemory is after how long a backend is assumed to have read what it was sent, and
	// paceMost is how much it may have unread at most.
	paceMemory = time.Second
	paceMost   = 4 * paceWindow
	// turnTime is how long one session has its turn: a client that sends faster than it is
	// paced would keep the others waiting for ever.
	turnTime = 2 * time.Second
)

// pace bounds how fast one port's held datagrams are delivered.
type pace struct {
	// turn is held by the session that delivers; waiting counts it and those that
	// come after it.
	turn    sync.Mutex
	waiting atomic.Int32
	// unanswered is how many more held datagrams went out than answers came.
	unanswered atomic.Int32
	// limiter is for what is beyond the window.
	limiter *rate.Limiter
	// last is when a datagram went out, and began when the session got its turn. The session
	// that has the turn owns both.
	last, began time.Time
}

func newPace() *pace { return &pace{limiter: rate.NewLimiter(silentRate, silentBurst)} }

// begin waits for a session's turn; end passes it on.
func (p *pace) begin() {
	p.waiting.Add(1)
	p.turn.Lock()
	p.began = time.Now()
}

func (p *pace) end() {
	p.turn.Unlock()
	p.waiting.Add(-1)
}

// answered notes that the backend sent something.
func (p *pace) answered() {
	if n := p.unanswered.Load(); n > 0 {
		p.unanswered.CompareAndSwap(n, n-1)
	}
}

// wait returns when the next datagram may go, or the context ends. It is for the session that
// has the turn.
func (p *pace) wait(ctx context.Context) {
	defer p.sent()
	if time.Since(p.last) > paceMemory {
		p.unanswered.Store(0)
	}
	for p.unanswered.Load() >= paceWindow && time.Since(p.began) < turnTime {
		if limit := silentLimit(p.waiting.Load()); limit != p.limiter.Limit() {
			p.limiter.SetLimit(limit)
		}
		if p.limiter.Allow() {
			return
		}
		select {
		case <-time.After(paceStep):
		case <-ctx.Done():
			return
		}
	}
}

func (p *pace) sent() {
	if p.unanswered.Load() < paceMost {
		p.unanswered.Add(1)
	}
	p.last = time.Now()
}

func silentLimit(waiting int32) rate.Limit {
	return rate.Limit(min(max(waiting*silentRatePerClient, silentRate), silentRateMax))
}
