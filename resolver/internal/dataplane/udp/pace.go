package udp

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Held datagrams of many sessions, delivered all at once, would overflow the receive buffer of
// a backend that has just begun to read: Linux gives a socket room for some 270 small
// datagrams. So the sessions of a port take turns to deliver theirs, a few ahead of the answers
// of the backend. A backend that answers gets as much as it reads, and one that is busy gets
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
	// turnDatagrams is how many a session delivers in one turn. With more to deliver it goes to the
	// end of the line again: whoever has much to deliver keeps nobody waiting who has little.
	turnDatagrams = 16
	// mostTurns is how many turns a session has before one in which it delivers all it has: clients
	// that go on sending meanwhile would stand in line for ever otherwise.
	mostTurns = 64
	// turnTime is how long a session is paced in all its turns together. A client that sends
	// faster than it is paced would never be done otherwise.
	turnTime = 2 * time.Second
)

// pace bounds how fast one port's held datagrams are delivered.
type pace struct {
	// turn has an element while a session delivers. A channel lets those in who wait in the order
	// in which they came. Waiting counts all of them.
	turn    chan struct{}
	waiting atomic.Int32
	// unanswered is how many more held datagrams went out than answers came.
	unanswered atomic.Int32
	// limiter is for what is beyond the window.
	limiter *rate.Limiter
	// last is when a datagram went out. The session that has the turn owns it.
	last time.Time
}

func newPace() *pace {
	return &pace{turn: make(chan struct{}, 1), limiter: rate.NewLimiter(silentRate, silentBurst)}
}

// turns are one session's, from begin to end.
type turns struct {
	of *pace
	// began is when the present one began, and before is how long those before it took.
	began  time.Time
	before time.Duration
	// left is how many datagrams are left of it, and taken how many turns there were.
	left, taken int
}

// begin waits for a session's first turn; end ends the last.
func (p *pace) begin() turns {
	p.waiting.Add(1)
	t := turns{of: p}
	t.take()
	return t
}

func (t *turns) end() {
	<-t.of.turn
	t.of.waiting.Add(-1)
}

func (t *turns) take() {
	t.of.turn <- struct{}{}
	t.began, t.left = time.Now(), turnDatagrams
	if t.taken++; t.taken > mostTurns {
		t.left = math.MaxInt
	}
}

// next passes the turn on where nothing is left of it, and waits for the next one. It reports
// whether it did.
func (t *turns) next() (passed bool) {
	if t.left > 0 {
		return false
	}
	t.before += time.Since(t.began)
	<-t.of.turn
	t.take()
	return true
}

// answered notes that the backend sent something.
func (p *pace) answered() {
	if n := p.unanswered.Load(); n > 0 {
		p.unanswered.CompareAndSwap(n, n-1)
	}
}

// wait returns when the turn's next datagram may go, or the context ends.
func (t *turns) wait(ctx context.Context) {
	p := t.of
	defer p.sent()
	t.left--
	if time.Since(p.last) > paceMemory {
		p.unanswered.Store(0)
	}
	for p.unanswered.Load() >= paceWindow && t.before+time.Since(t.began) < turnTime {
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
