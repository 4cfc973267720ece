package hold

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// nothingToWake is for how long the operator has answered that there is nothing to wake.
// The wake loop alone uses it.
type nothingToWake struct {
	// since is the first in an uninterrupted series of answers that there is nothing to wake,
	// and last the last of them; zero when there is none.
	since, last time.Time
	// certain is set once the series has lasted nothingTime.
	certain bool
}

// answered takes in an answer, and reports whether the clients that it was asked for wait in
// vain. After any other answer, or none, they wait on: a resolver that can't reach the operator
// doesn't know.
func (n *nothingToWake) answered(now time.Time, outcome wake.Outcome) bool {
	if outcome != wake.NotFound {
		*n = nothingToWake{}
		return false
	}
	keep := nothingGap
	if n.certain {
		keep = nothingMemory
	}
	if n.since.IsZero() || now.Sub(n.last) > keep {
		*n = nothingToWake{since: now}
	}
	n.last = now
	n.certain = n.certain || now.Sub(n.since) >= nothingTime
	return n.certain
}

// refuseUpTo refuses all clients up to seq: the operator was asked for those.
func (q *Queue) refuseUpTo(seq uint64) {
	q.mu.Lock()
	var refused []*Ticket
	for _, p := range q.ports {
		rest := p.waiting[:0]
		for _, t := range p.waiting {
			if t.seq > seq {
				rest = append(rest, t)
				continue
			}
			q.end(t)
			q.waiting--
			refused = append(refused, t)
		}
		clear(p.waiting[len(rest):])
		p.waiting = rest
	}
	q.mu.Unlock()
	refuse(refused, proto.NothingToWake)
}
