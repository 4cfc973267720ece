package hold

import (
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// startWaking makes the wake loop run, or look again.
func (q *Queue) startWaking() {
	if q.waking {
		q.rouseLocked()
		return
	}
	q.waking = true
	q.wg.Go(q.wakeLoop)
}

func (q *Queue) rouseLocked() {
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
		q.answered(result, seq)
		if q.nothing.answered(time.Now(), result.Outcome) {
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
	case q.crowded():
		return q.lastCall.Add(crowdedPeriod)
	}
	return q.lastCall.Add(wakePeriod)
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

// behind reports whether the operator reported a sleep that the route doesn't have yet, nor the
// pods that are from before it.
func (q *Queue) behind() bool { return !q.slept.IsZero() && !q.slept.Equal(q.route.LastSleep) }

// answered takes in the result of a call that was made for all clients up to seq.
func (q *Queue) answered(result wake.Result, seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.opts.Metrics.WakeCalled(q.route.Namespace, q.route.Service, string(result.Outcome))
	changed := result.Outcome != q.lastResult.Outcome
	q.lastResult = result
	if !result.LastSleep.IsZero() {
		q.slept = result.LastSleep
	}
	switch {
	case result.Cancelled():
		q.approved = seq
		for _, p := range q.ports {
			p.wake()
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
