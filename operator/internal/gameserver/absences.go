package gameserver

import (
	"sync"
	"time"
)

// absences remembers since when things have been missing that should be there.
type absences struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// forgetAfter bounds for how long a missing thing is remembered, and so how many are.
const forgetAfter = 24 * time.Hour

// since is when something was first missed: now, if it wasn't missing before.
func (a *absences) since(what string, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.first[what]; !ok {
		for other, first := range a.first {
			if now.Sub(first) > forgetAfter {
				delete(a.first, other)
			}
		}
		a.first[what] = now
	}
	return a.first[what]
}

// forget is called for a thing that is there.
func (a *absences) forget(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.first, what)
}

// recent remembers things that were created a short time ago.
type recent struct {
	keep time.Duration

	mu    sync.Mutex
	at    map[string]time.Time
	swept time.Time
}

func newRecent(keep time.Duration) *recent { return &recent{keep: keep, at: map[string]time.Time{}} }

func (r *recent) add(what string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.swept) >= r.keep {
		r.swept = now
		for other, at := range r.at {
			if now.Sub(at) >= r.keep {
				delete(r.at, other)
			}
		}
	}
	r.at[what] = now
}

func (r *recent) has(what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[what]
	return ok && now.Sub(at) < r.keep
}

func (r *recent) forget(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, what)
}
