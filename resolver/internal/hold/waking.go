package hold

import (
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// rouseLocked makes the wake loop look again, if it runs.
func (q *Queue) rouseLocked() {
	if !q.waking {
		return
	}
	select {
	case q.rouse <- struct{}{}:
	default:
	}
}

// wakeLoop calls the operator while somebody waits, one call at a time.
func (q *Queue) wakeLoop() {
	defer utilruntime.HandleCrash()
	for {
		q.mu.Lock()
		if q.closed || q.waiting == 0 {
			q.waking = false
			q.unseen = time.Time{} // nobody asks on: it may never come
			q.mu.Unlock()
			return
		}
		wait := time.Until(q.due())
		if wait > 0 {
			q.mu.Unlock()
			q.pause(wait)
			continue
		}
		r, count, seq := q.route, q.waiting, q.lastSeq
		q.asked = seq
		q.lastCall = time.Now()
		if q.called.IsZero() {
			q.called = q.lastCall
			for _, p := range q.ports {
				if len(p.waiting) > 0 {
					p.counts.Took(metrics.StageAsked, q.called.Sub(q.began))
				}
			}
		}
		q.mu.Unlock()

		result := q.opts.Waker.Wake(q.ctx, r.Namespace, r.Service, count)
		if q.answered(result, seq) {
			q.refuseUpTo(seq)
		}
	}
}

// due is when the next call is due.
func (q *Queue) due() time.Time {
	switch {
	case q.lastCall.IsZero():
		return time.Time{}
	case q.called.IsZero():
		// The first client of a queue that was empty doesn't wait.
		return q.lastCall.Add(wakeGap)
	case q.route.AwaitsWake() && q.lastSeq > q.asked && q.lastResult.Outcome == wake.Accepted:
		// A client came after the last call. Only a call made for it stops a sleep that has
		// begun since.
		return q.lastCall.Add(wakeGap)
	case !q.lastResult.Cancelled():
		return q.lastCall.Add(retryPeriod)
	case q.unseen.IsZero() && q.crowded():
		return q.lastCall.Add(crowdedPeriod)
	}
	return q.lastCall.Add(wakePeriod)
}

// answered takes in the result of a call that was made for all clients up to seq, and reports
// whether they wait in vain.
func (q *Queue) answered(result wake.Result, seq uint64) (inVain bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	inVain = q.nothing.answered(time.Now(), result.Outcome)
	q.opts.Metrics.WakeCalled(q.route.Namespace, q.route.Service, string(result.Outcome))
	changed := result.Outcome != q.lastResult.Outcome
	q.lastResult = result
	if !result.LastSleep.IsZero() {
		q.slept = result.LastSleep
	}
	if result.Cancelled() {
		q.unseen = result.LastWakeTime
		q.seeWake()
	}
	switch {
	case result.Cancelled():
		q.approved = seq
		for _, p := range q.ports {
			if p.dialing && len(p.backends) > 0 {
				p.wake()
			}
		}
	case result.Outcome == wake.Accepted && result.Phase == v1alpha1.PhaseAsleep:
		// The service falls asleep in spite of an earlier call.
		q.approved = 0
	}
	if changed && result.Outcome != wake.Accepted {
		q.opts.Log.Info("The operator could not be asked to wake a service",
			"namespace", q.route.Namespace, "service", q.route.Service,
			"outcome", result.Outcome, "error", errText(result.Err))
	} else if changed {
		q.opts.Log.V(1).Info("The operator was asked to wake a service",
			"namespace", q.route.Namespace, "service", q.route.Service, "phase", result.Phase)
	}
	return inVain
}

// FindsNothing reports whether it is certain that there is nothing to wake.
func (q *Queue) FindsNothing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nothing.knows(time.Now())
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// pause waits for a time or until there is a reason to look again.
func (q *Queue) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.rouse:
	case <-q.ctx.Done():
	}
}

// nothingToWake is for how long the operator has answered that there is nothing to wake.
type nothingToWake struct {
	// held is of those who wait, for whom the operator is asked again and again, and page of those
	// who are told to come again, for whom it is asked when they do.
	held, page series
}

const (
	// pageGap is nothingGap for a page, which is loaded again every 5 seconds.
	pageGap = 10 * time.Second
	// pageMemory is nothingMemory for a page, which is loaded again after a minute then.
	pageMemory = 2 * nothingMemory
)

// answered takes in an answer, and reports whether the clients that it was asked for wait in
// vain. An accepted call begins anew. After a call that failed they wait on, since it says nothing:
// neither that there is something to wake nor that there isn't.
func (n *nothingToWake) answered(now time.Time, outcome wake.Outcome) bool {
	if outcome == wake.Accepted {
		*n = nothingToWake{}
	}
	if outcome != wake.NotFound {
		return false
	}
	n.page.add(now, pageGap, pageMemory)
	n.held.add(now, nothingGap, nothingMemory)
	return n.held.certain
}

// knows reports whether those who are told to come again would do so in vain.
func (n *nothingToWake) knows(now time.Time) bool {
	return n.page.certain && now.Sub(n.page.last) <= pageMemory
}

// series is a series of answers that there is nothing to wake, with no accepted call among them.
type series struct {
	// since is the first of them, and last the last; zero when there is none.
	since, last time.Time
	// certain is set once the series has lasted nothingTime.
	certain bool
}

// add takes in one more. It begins a new series if the last is longer ago than gap or, in one that
// is certain, than memory.
func (s *series) add(now time.Time, gap, memory time.Duration) {
	if s.certain {
		gap = memory
	}
	if s.since.IsZero() || now.Sub(s.last) > gap {
		*s = series{since: now}
	}
	s.last = now
	s.certain = s.certain || now.Sub(s.since) >= nothingTime
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
