package kindwatch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// startTime bounds how long a controller waits for the watches of usual kinds that are named
	// when it starts, so that its first passes needn't ask the API server.
	startTime = 10 * time.Second
	startPoll = 20 * time.Millisecond
)

// Queue is a controller's queue.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Source tells a controller what changes. It is a source.SyncingSource.
type Source struct {
	Kinds *Kinds
	// Handle asks for passes after a change.
	Handle func(ctx context.Context, c Change, q Queue)

	// begun is set once the controller has its first passes, for which nothing needs to be told.
	begun atomic.Bool
}

// Start implements source.Source.
func (s *Source) Start(ctx context.Context, q Queue) error {
	s.begun.Store(s.Kinds.options.Namer == nil)
	s.Kinds.mu.Lock()
	defer s.Kinds.mu.Unlock()
	s.Kinds.notify = func(c Change) {
		if !c.Listed || s.begun.Load() {
			s.Handle(ctx, c, q)
		}
	}
	return nil
}

// WaitForSync implements source.SyncingSource. Kinds that can't be watched don't keep the
// controller from its start.
func (s *Source) WaitForSync(ctx context.Context) error {
	defer s.begun.Store(true)
	if s.Kinds.options.Namer == nil {
		return nil
	}
	select {
	case <-s.Kinds.namersListed:
	case <-ctx.Done():
		return errors.New("not all that name kinds are known")
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, startPoll, true, func(context.Context) (bool, error) { return s.Kinds.settled(), nil })
	return nil
}
