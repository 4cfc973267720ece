package hold

import (
	"slices"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// turnTime bounds how long a client that was released keeps others waiting whose turn comes after
// its server has answered it: not all servers answer, and not all protocols have the server
// answer first.
const turnTime = 5 * time.Second

// A service may have its held clients released a few at a time, so that a server that has just
// come up isn't buried: the next one's turn comes when one of those has had its server's first
// byte, or is gone, or has waited for turnTime. It is for TCP: datagrams that are not answered are
// sent again anyway.

// takeTurn counts a client that is released. It is called with the queue's lock.
func (p *port) takeTurn(t *Ticket, now time.Time) {
	if q := p.queue; p.Network == route.TCP && q.route.Hold.ReleaseConcurrency > 0 {
		t.turn = now
		q.turns = append(q.turns, t)
	}
}

// untilTurn is how long it takes until the next client may be released, unless one of those that
// were is answered before; 0: now.
func (p *port) untilTurn(now time.Time) time.Duration {
	q := p.queue
	most := q.route.Hold.ReleaseConcurrency
	if p.Network != route.TCP || most == 0 {
		return 0
	}
	over := 0
	for over < len(q.turns) && now.Sub(q.turns[over].turn) >= turnTime {
		over++
	}
	q.turns = slices.Delete(q.turns, 0, over)
	if len(q.turns) < most {
		return 0
	}
	// Where fewer are let in than before, some more have to go first.
	return q.turns[len(q.turns)-most].turn.Add(turnTime).Sub(now)
}

// endTurn lets the next client be released. It is called with the queue's lock.
func (q *Queue) endTurn(t *Ticket) {
	if i := slices.Index(q.turns, t); i >= 0 {
		q.turns = slices.Delete(q.turns, i, i+1)
		q.roomMade()
	}
}

// Answered ends the turn of a client that was delivered: its server has answered it, or it is
// gone. It doesn't wait for the queue's lock: relays, which call it, must not be kept from others'
// bytes.
func (t *Ticket) Answered() {
	go func() {
		defer utilruntime.HandleCrash()
		q := t.queue
		q.mu.Lock()
		defer q.mu.Unlock()
		q.endTurn(t)
	}()
}
