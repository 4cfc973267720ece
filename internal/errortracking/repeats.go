package errortracking

import (
	"sync"
	"time"
)

const (
	// remember is for how long a report keeps similar ones about the same object from being
	// sent.
	remember = 10 * time.Minute
	// every and burst bound all reports together: when the API server is down every object
	// fails.
	every = 10 * time.Second
	burst = 30
	// most bounds how many are remembered. The oldest is forgotten first.
	most = 1024
)

// repeats remembers what was reported a short time ago.
type repeats struct {
	now func() time.Time

	mu     sync.Mutex
	recent map[string]time.Time
	// order has the remembered reports, the oldest first, and some that were forgotten since.
	order []seen
}

type seen struct {
	key string
	at  time.Time
}

func newRepeats() *repeats { return &repeats{now: time.Now, recent: map[string]time.Time{}} }

// first reports whether a report is the first of its kind within remember.
func (r *repeats) first(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for len(r.order) > 0 && (now.Sub(r.order[0].at) >= remember || len(r.order) >= most) {
		if r.recent[r.order[0].key].Equal(r.order[0].at) {
			delete(r.recent, r.order[0].key)
		}
		r.order = r.order[1:]
	}
	if _, ok := r.recent[key]; ok {
		return false
	}
	r.recent[key] = now
	r.order = append(r.order, seen{key, now})
	return true
}

// forget makes the next report of a kind the first.
func (r *repeats) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.recent, key)
}
