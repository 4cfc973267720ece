package udp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Held datagrams of many sessions, delivered all at once, would overflow the
// receive buffer of a server that has just begun to read: Linux gives a socket
// room for some 270 small datagrams. So a port delivers them one session after
// the other, a few ahead of the server's answers: a server that answers gets as
// much as it reads, and one that is busy with something else gets little
// meanwhile. Servers that say nothing are given time instead.
const (
	// paceWindow is how far held datagrams go ahead of the server's answers.
	paceWindow = 64
	// paceStep is how often somebody who waits for an answer looks.
	paceStep = time.Millisecond

	// silentRate is how many datagrams a second go out beyond the window. From some
	// clients on it grows with those that wait, or what they send meanwhile would
	// keep them waiting for ever.
	silentRate          = 1000
	silentRatePerClient = 100
	silentRateMax       = 8000
	// silentBurst makes up for a step that took long.
	silentBurst = 16
	// paceMemory is after how long a server is thought to have read what it was sent,
	// and paceMost what it may have before it, at most.
	paceMemory = time.Second
	paceMost   = 4 * paceWindow
	// turnTime is for how long one session is paced: a client that sends faster than
	// it is would keep the others waiting for ever.
	turnTime = 2 * time.Second
)

// pace bounds how fast one port's held datagrams are delivered.
type pace struct {
	// turn is held by the session that delivers; waiting counts it and those that
	// come after it.
	turn    sync.Mutex
	waiting atomic.Int32
	// ahead is how many more held datagrams went out than answers came.
	ahead atomic.Int32
	// limiter is for what is beyond the window.
	limiter *rate.Limiter
	// last is when a datagram went out, and began when the session got its turn;
	// whoever has the turn has both.
	last, began time.Time
}

func newPace() *pace { return &pace{limiter: rate.NewLimiter(silentRate, silentBurst)} }

// begin waits for a session's turn; end gives it on.
func (p *pace) begin() {
	p.waiting.Add(1)
	p.turn.Lock()
	p.began = time.Now()
}

func (p *pace) end() {
	p.turn.Unlock()
	p.waiting.Add(-1)
}

// answered notes that the server said something.
func (p *pace) answered() {
	if n := p.ahead.Load(); n > 0 {
		p.ahead.CompareAndSwap(n, n-1)
	}
}

// wait returns when the next datagram may go, or the context ends. It is for
// whoever has the turn.
func (p *pace) wait(ctx context.Context) {
	defer p.sent()
	if time.Since(p.last) > paceMemory {
		p.ahead.Store(0)
	}
	for p.ahead.Load() >= paceWindow && time.Since(p.began) < turnTime {
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
	if p.ahead.Load() < paceMost {
		p.ahead.Add(1)
	}
	p.last = time.Now()
}

func silentLimit(waiting int32) rate.Limit {
	return rate.Limit(min(max(waiting*silentRatePerClient, silentRate), silentRateMax))
}
