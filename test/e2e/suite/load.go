package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Load opens new connections, each for one message, and counts what becomes of
// every one of them.
type Load struct {
	address string
	opened  atomic.Int64
	mu      sync.Mutex
	failed  []error
	slowest time.Duration
}

// NewLoad makes a load on an address.
func NewLoad(address string) *Load { return &Load{address: address} }

// every is the time between two new connections.
const every = 50 * time.Millisecond

// Start opens connections until the function that it gives is called, which
// waits for those that are open.
func (l *Load) Start(ctx context.Context) (stop func()) {
	ticking, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ticking.Done():
				return
			case <-tick.C:
				group.Go(func() { l.play(ctx) })
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

func (l *Load) play(ctx context.Context) {
	l.opened.Add(1)
	ctx, cancel := context.WithTimeout(ctx, PlayTimeout)
	defer cancel()
	began := time.Now()
	stats, err := PlayOnce(ctx, "tcp", l.address)
	if err == nil {
		err = stats.Intact()
	}
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, took)
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("at %s, after %s: %w", began.Format("15:04:05.000"), took, err))
	}
}

// Check fails the test unless every connection was served.
func (l *Load) Check(t *testing.T) {
	t.Helper()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d connections were not served: %v", len(l.failed), l.opened.Load(), errors.Join(l.failed...))
	}
	t.Logf("%d connections, %d of them not served; the slowest took %s", l.opened.Load(), len(l.failed), l.slowest)
}
