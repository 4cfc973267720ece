// Package raising has targets scaled up for clients who wait in turn, and has work for which nobody
// waits let them go first: hundreds may wake within a second, and the API server takes its time for
// each call. It scales nothing itself, and one that is late waits no longer than a bound.
package raising

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/operator/internal/fair"
)

const (
	// atOnce is how many have their turn at once. A call takes an API server some 20 ms, so those are a
	// thousand in a second; more at once would only share its processors, and the first be done as late
	// as the last.
	atOnce = 24
	// ofNamespace is how many of them are of one namespace. The others find a turn at once, whatever
	// that one wakes, and however long its calls hang.
	ofNamespace = 18
	// maxQueued and maxQueuedOfNamespace bound how many wait for their turn: each is a goroutine and an
	// ElasticService, some 10 KiB. It is four seconds' work, and callers come again.
	maxQueued, maxQueuedOfNamespace = 4096, 1024
)

// ErrFull means that too many wait for their turn.
var ErrFull = fair.ErrFull

// Raises are those that are under way: all that have begun, whether their turn has come or not. They share
// the API server out: the namespaces take turns, however many wait in each, and within one the first to come
// is the first. New makes them; a nil Raises has none, and no turns.
type Raises struct {
	turns *fair.Permits

	mu sync.Mutex
	// under is how many are under way. It is changed under mu.
	under atomic.Int32
	// since is since when there has always been one, and over is closed when there is none any more; nil
	// while there is none.
	since time.Time
	over  chan struct{}
}

// New has no raise under way.
func New() *Raises {
	return &Raises{turns: fair.New(atOnce, ofNamespace).Bounded(maxQueued, maxQueuedOfNamespace)}
}

// Begin waits for the turn of a raise in a namespace. The raise is under way from now on until end, which may
// be called more than once. One that takes longer than half a second from its turn on gives that to the next,
// and counts no more: a target whose call hangs, again and again, would slow everybody. An error is ErrFull or
// the context's, and then there is no turn.
func (r *Raises) Begin(ctx context.Context, namespace string) (end func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	r.mu.Lock()
	if r.under.Add(1); r.over == nil {
		r.since, r.over = time.Now(), make(chan struct{})
	}
	r.mu.Unlock()
	over := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.under.Add(-1) == 0 {
			close(r.over)
			r.over = nil
		}
	}
	if err := r.turns.Acquire(ctx, namespace); err != nil {
		over()
		return nil, fmt.Errorf("wait for a turn: %w", err)
	}
	once := sync.OnceFunc(func() {
		r.turns.Release(namespace)
		over()
	})
	late := time.AfterFunc(longest, once)
	return func() {
		late.Stop()
		once()
	}, nil
}
