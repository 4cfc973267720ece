package report

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/internal/httpserver"
)

// lookers is how many held reports have a look taken at a time. Only while a cache is being filled does a look
// take longer than some microseconds.
const lookers = 32

// tick is how far apart the moments are at which holds end. Those who are answered at one of them report anew at
// about the same time, too. With each alone, waking and sleeping was a third of what a replica did at rest.
const tick = 50 * time.Millisecond

// began is from when the ticks are counted.
var began = time.Now()

// together is how long a hold lasts that begins at a time and may last for most: it ends at a tick, unless it is
// shorter than that.
func together(at, most time.Duration) time.Duration {
	if most < tick {
		return most
	}
	return most - (at+most)%tick
}

// waiter is a report that is held, or may come to be: it is looked at again when something happened
// since the last look began. One look of it is under way at a time. The one who holds the report
// takes the first without being asked.
type waiter struct {
	mu sync.Mutex
	// look has a look taken, and must not wait.
	look func()
	// due is set while a look is due or under way.
	due bool
	// news is set when something has happened since that began, and over when the report is to be
	// answered in any case.
	news, over bool
}

func newWaiter() *waiter { return &waiter{due: true} }

// wake has a look taken. Over: the report is answered then. It doesn't wait.
func (w *waiter) wake(over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news, w.over = true, w.over || over
	if !w.due {
		w.due = true
		w.look()
	}
}

// begin begins a look. Over: the report is to be answered in any case.
func (w *waiter) begin() (over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news = false
	return w.over
}

// rest ends a look that told nothing. There is none after one that isn't ended.
func (w *waiter) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due = w.news; w.due {
		w.look()
	}
}

// held is a report that is held until there is something to tell.
type held struct {
	taken
	handler *Handler
	parked  *httpserver.Parked
	// timer ends the hold; nil during the first look.
	timer *time.Timer
}

// holding has a report counted as held, until a look ends that.
func (h *Handler) holding(t taken) *held {
	h.metrics.Held(1)
	return &held{taken: t, handler: h}
}

// park leaves the report to the looks that follow.
func (r *held) park(rc *fasthttp.RequestCtx) {
	over := func() { r.waiter.wake(true) }
	r.waiter.look = func() { r.handler.line.add(r.lookAgain) }
	if r.handler.table.comes(r.uid) {
		// Sidecars that come at once, when their replica has ended, come again one after the other.
		r.hold = r.handler.firstHold(r.hold)
	}
	// Reports that come together drift apart, over several ticks.
	most := r.hold - rand.N(r.hold/10+1) //nolint:gosec // any number will do
	r.timer = time.AfterFunc(together(time.Since(began), most), over)
	r.parked = r.handler.web.Park(rc, over)
	r.waiter.rest()
}

// lookAgain answers the report if there is something to tell.
func (r *held) lookAgain() {
	r.parked.Do(func() {
		if r.tells() {
			r.parked.Answer(func(response *fasthttp.Response) { r.handler.answer(response, &r.taken) })
			return
		}
		r.waiter.rest()
	})
}

// tells looks at the report, and reports whether it is to be answered. It isn't held any more then.
// The Server is read again after the report was remembered, because it may have gone in between.
func (r *held) tells() (yes bool) {
	yes = true // where it panics, too
	defer func() {
		if yes {
			r.end()
		}
	}()
	over := r.waiter.begin()
	r.handler.look(&r.taken)
	if r.refused != nil || over || r.answer.Version != r.seen {
		return true
	}
	r.answer = nil // thousands wait
	return false
}

func (r *held) end() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.handler.table.leave(r.uid, r.waiter)
	r.handler.held.Add(-1)
	r.handler.metrics.Held(-1)
}
