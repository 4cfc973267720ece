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
var ErrFull = errors.New("too many wakes wait for their turn")

// Turns share the API server out among the calls of many wakes. The namespaces take turns, however many
// calls wait in each, and within one the first to come is the first. Nil Turns come at once.
type Turns struct {
	mu sync.Mutex
	// permits are nil until the first call.
	permits *fair.Permits
	// queued are how many wait for their turn, and queuedOf how many of each namespace.
	queued   int
	queuedOf map[string]int
}

// Begin waits for the turn of a call in a namespace, which lasts until end. That may be called more than once.
// One that takes longer than half a second gives its turn to the next. An error is ErrFull or the context's,
// and then there is no turn.
func (t *Turns) Begin(ctx context.Context, namespace string) (end func(), err error) {
	return t.begin(ctx, namespace, func() {})
}

// begin is Begin. Over is called once, when the turn ends.
func (t *Turns) begin(ctx context.Context, namespace string, over func()) (end func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	permits, err := t.queue(namespace)
	if err != nil {
		return nil, err
	}
	err = permits.Acquire(ctx, namespace)
	t.leaveQueue(namespace)
	if err != nil {
		return nil, fmt.Errorf("wait for a turn: %w", err)
	}
	once := sync.OnceFunc(func() {
		permits.Release(namespace)
		over()
	})
	timer := time.AfterFunc(longest, once)
	return func() {
		timer.Stop()
		once()
	}, nil
}

// queue notes a call that waits for its turn.
func (t *Turns) queue(namespace string) (*fair.Permits, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queued >= maxQueued || t.queuedOf[namespace] >= maxQueuedOfNamespace {
		return nil, ErrFull
	}
	if t.permits == nil {
		t.permits, t.queuedOf = fair.New(atOnce, ofNamespace), map[string]int{}
	}
	t.queued++
	t.queuedOf[namespace]++
	return t.permits, nil
}

// leaveQueue notes that a call waits no more.
func (t *Turns) leaveQueue(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued--
	if t.queuedOf[namespace]--; t.queuedOf[namespace] == 0 {
		delete(t.queuedOf, namespace)
	}
}
