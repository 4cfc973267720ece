// Package raising has targets scaled up for clients who wait in turn, and has work for which nobody
// waits let them go first: hundreds may wake within a second, and the API server takes its time for
// each call. It scales nothing itself, and one that is late waits no longer than a bound.
package raising

import (
	"context"
	"sync"
	"time"
)

// Raises are those that are under way: all that have begun, whether their turn has come or not. A nil
// Raises has none, and no turns.
type Raises struct {
	turns Turns

	mu    sync.Mutex
	under int
	// since is since when there has always been one, and over is closed when there is none any more; nil
	// while there is none.
	since time.Time
	over  chan struct{}
}

// Begin waits for the turn of a raise in a namespace, as Turns do. The raise is under way from now on until
// end. One that takes longer than others wait counts no more: a target whose call hangs, again and again,
// would slow everybody.
func (r *Raises) Begin(ctx context.Context, namespace string) (end func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	r.begin()
	if end, err = r.turns.begin(ctx, namespace, r.end); err != nil {
		r.end()
	}
	return end, err
}

func (r *Raises) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under++; r.over == nil {
		r.since, r.over = time.Now(), make(chan struct{})
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
