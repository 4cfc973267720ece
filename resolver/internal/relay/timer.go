package relay

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// How often unacknowledged bytes are looked for before a reset: at short intervals first, then
// at longer ones. The kernel notifies nobody of them, and few relays end so.
const (
	firstLook = time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// timer is for a relay's timeouts, and for unacknowledged bytes before its end.
type timer struct {
	timer *time.Timer
	// due is when it goes off; zero where it doesn't.
	due time.Time
	// said is when something was sent last, where the relay may not be silent for ever: timed is
	// set then, and half once the limit is that of a half-closed relay.
	said        time.Time
	timed, half bool
	// look is how long the next look for unacknowledged bytes waits; 0 before both directions
	// are over.
	look time.Duration
}

func (t *timer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// timerOf is the relay's timer, which is made when it is first needed: most relays need none.
func (r *Relay) timerOf() *timer {
	if r.timer == nil {
		r.timer = &timer{}
	}
	return r.timer
}

// awaitsHearing has the relay look again whether a side that is there has received all; false:
// it has.
func (r *Relay) awaitsHearing(e *end) bool {
	if e.gone || !conn.Unheard(e.file.FD) || conn.Closed(e.file.FD) {
		return false
	}
	_ = e.want()
	t := r.timerOf()
	t.look = min(max(firstLook, 2*t.look), lastLook)
	r.wake(t.look)
	return true
}

// limit is how long the relay may be silent.
func (r *Relay) limit() time.Duration {
	limit := r.options.Idle
	if half := r.options.HalfClosed; r.timer.half && (limit == 0 || half < limit) {
		limit = half
	}
	return limit
}

// arm sets the timeout that ends the relay.
func (r *Relay) arm(limit time.Duration) {
	if !r.closed {
		r.wake(limit)
		r.timer.timed, r.timer.said = true, time.Now()
	}
}

// wake has the loop call expire after a time, or sooner where an earlier call said so.
func (r *Relay) wake(after time.Duration) {
	t, due := r.timerOf(), time.Now().Add(after)
	if !t.due.IsZero() && t.due.Before(due) {
		return
	}
	t.due = due
	if t.timer == nil {
		t.timer = time.AfterFunc(after, func() { r.loop().Do(r.expire) })
		return
	}
	t.timer.Reset(after)
}

// expire checks whether it is time for the end.
func (r *Relay) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	t := r.timer
	t.due = time.Time{}
	if t.look > 0 {
		r.settle()
		return
	}
	if t.timed {
		left := r.limit() - time.Since(t.said)
		if left <= 0 {
			r.reset(ByTimeout, nil)
			return
		}
		r.wake(left)
	}
	if r.options.Head > 0 && r.up.dawdles() && time.Since(r.up.since) >= r.options.Head {
		// Its earlier requests are still answered.
		r.up.stop, r.up.cut, r.up.over = http1.Cut, ByTimeout, true
		r.up.withhold(nil, false)
	}
	r.settle()
}
