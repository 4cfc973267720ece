// Package raising has targets scaled up for clients who wait in turn, and has work for which nobody
// waits let them go first: hundreds may wake within a second, and the API server takes its time for
// each call. It scales nothing itself, and one that is late waits no longer than a bound.
package raising

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dormouse.dev/dormouse/operator/internal/fair"
)

const (
	// atOnce is how many targets are scaled up at once. A call takes an API server some 20 ms, so those
	// are a thousand in a second; more at once would only share its processors, and the first be done as
	// late as the last.
	atOnce = 24
	// ofNamespace is how many of them are of one namespace. The others find a turn at once, whatever
	// that one wakes, and however long its calls hang.
	ofNamespace = 18
	// maxQueued and maxQueuedOfNamespace bound how many raises wait for their turn: each is a goroutine
	// and an ElasticService, some 10 KiB. It is four seconds' work, and callers come again.
	maxQueued, maxQueuedOfNamespace = 4096, 1024
)

// ErrFull means that too many raises wait for their turn.
var ErrFull = errors.New("too many targets wait to be scaled up")

// Raises are those that are under way: all that have begun, whether their turn has come or not. A nil
// Raises has none, and no turns.
type Raises struct {
	mu sync.Mutex
	// turns are nil until the first raise.
	turns *fair.Permits
	// queued are how many wait for their turn, and queuedOf how many of each namespace.
	queued   int
	queuedOf map[string]int
	under    int
	// since is since when there has always been one, and over is closed when there is none any more; nil
	// while there is none.
	since time.Time
	over  chan struct{}
}

// Begin waits until it is the turn of a raise in a namespace. The namespaces take turns, however many
// raises wait in each, and within one the first to come is the first. The raise is under way until end,
// which may be called more than once. One that takes longer than others wait gives its turn to the next
// and counts no more: a target whose call hangs, again and again, would slow everybody. An error is
// ErrFull or the context's, and then there is no raise.
func (r *Raises) Begin(ctx context.Context, namespace string) (end func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	turns, err := r.join(namespace)
	if err != nil {
		return nil, err
	}
	err = turns.Acquire(ctx, namespace)
	r.leaveQueue(namespace)
	if err != nil {
		r.end()
		return nil, fmt.Errorf("wait for a turn: %w", err)
	}
	over := sync.OnceFunc(func() {
		turns.Release(namespace)
		r.end()
	})
	timer := time.AfterFunc(longest, over)
	return func() {
		timer.Stop()
		over()
	}, nil
}

// join notes a raise that waits for its turn.
func (r *Raises) join(namespace string) (*fair.Permits, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queued >= maxQueued || r.queuedOf[namespace] >= maxQueuedOfNamespace {
		return nil, ErrFull
	}
	if r.turns == nil {
		r.turns, r.queuedOf = fair.New(atOnce, ofNamespace), map[string]int{}
	}
	r.queued++
	r.queuedOf[namespace]++
	if r.under++; r.over == nil {
		r.since, r.over = time.Now(), make(chan struct{})
	}
	return r.turns, nil
}

// leaveQueue notes that a raise waits no more.
func (r *Raises) leaveQueue(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued--
	if r.queuedOf[namespace]--; r.queuedOf[namespace] == 0 {
		delete(r.queuedOf, namespace)
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
