package pending

import (
	"sync"
	"time"
)

// Recent remembers what was created a short time ago, by name: the cache may not show it yet.
type Recent struct {
	keep time.Duration

	mu    sync.Mutex
	at    map[string]time.Time
	swept time.Time
}

// NewRecent remembers each thing for so long.
func NewRecent(keep time.Duration) *Recent { return &Recent{keep: keep, at: map[string]time.Time{}} }

// Add remembers a thing that was just created.
func (r *Recent) Add(what string, now time.Time) {
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

// Has reports whether a thing was created so lately.
func (r *Recent) Has(what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[what]
	return ok && now.Sub(at) < r.keep
}

// Forget is called for a thing that the cache shows, or that wasn't created after all.
func (r *Recent) Forget(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, what)
}
