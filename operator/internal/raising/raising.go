// Package raising knows whether targets are being scaled up for clients who wait. While they are, work
// for which nobody waits lets them go first: hundreds may wake within a second, and the API server
// takes its time for each call.
package raising

import (
	"context"
	"sync"
	"time"
)

// longest is how long work waits: wakes without end delay it, and don't stop it.
const longest = 500 * time.Millisecond

// Raises are those that are under way. A nil Raises has none.
type Raises struct {
	mu    sync.Mutex
	under int
	// over is closed when there is none any more; nil while there is none.
	over chan struct{}
}

// Begin notes that a target is being scaled up, until end. One that takes longer than others wait counts
// no more: a target whose call hangs, again and again, would slow everybody.
func (r *Raises) Begin() (end func()) {
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under++; r.over == nil {
		r.over = make(chan struct{})
	}
	over := sync.OnceFunc(r.end)
	timer := time.AfterFunc(longest, over)
	return func() {
		timer.Stop()
		over()
	}
}

func (r *Raises) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under--; r.under == 0 {
		close(r.over)
		r.over = nil
	}
}

// Wait lets those go first that are under way, and those that come meanwhile, but not for longer than
// half a second.
func (r *Raises) Wait(ctx context.Context) {
	if r == nil {
		return
	}
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if over == nil {
		return
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
}
