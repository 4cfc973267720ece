package hold

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// nothingToWake is for how long the operator has answered that there is nothing to wake.
// The wake loop alone uses it.
type nothingToWake struct {
	// since is the first of the answers without a break by which there is
	// nothing to wake, and last the last of them; zero when there is none.
	since, last time.Time
	// certain is set once they have gone on for nothingTime.
	certain bool
}

// answered takes in an answer, and reports whether those it was asked for wait in vain. Any
// other answer, or none, has them wait on: who can't reach the operator doesn't know.
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

// refuseUpTo refuses all who wait up to seq: for them the operator was asked.
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
