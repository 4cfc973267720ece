package hold

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// hope is what the operator's answers leave of it that a service ever comes up.
// The wake loop alone uses it.
type hope struct {
	// since is the first of the answers without a break by which there is
	// nothing to wake, and last the last of them; zero when there is none.
	since, last time.Time
	// lost says that they have gone on for hopeTime.
	lost bool
}

// answered takes in an answer and says whether those it was asked for wait in
// vain. Every other answer, or none, leaves hope: whoever can't reach the
// operator doesn't know.
func (h *hope) answered(now time.Time, outcome wake.Outcome) bool {
	if outcome != wake.NotFound {
		*h = hope{}
		return false
	}
	keep := hopeGap
	if h.lost {
		keep = hopelessTime
	}
	if h.since.IsZero() || now.Sub(h.last) > keep {
		*h = hope{since: now}
	}
	h.last = now
	h.lost = h.lost || now.Sub(h.since) >= hopeTime
	return h.lost
}

// sendAway refuses all who wait up to seq: for them the operator was asked.
func (q *Queue) sendAway(seq uint64) {
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
