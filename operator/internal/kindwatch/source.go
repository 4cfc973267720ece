package kindwatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// startTime bounds how long a controller waits for the watches of kinds that are named when
	// it starts, so that its first passes needn't ask the API server.
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
	// Namers, of the kind of Namer, name kinds by KindOf, or none; nil: whoever calls Kinds.Name
	// does.
	Namers cache.Informers
	Namer  client.Object
	KindOf func(client.Object) (schema.GroupVersionKind, bool)

	namers toolscache.ResourceEventHandlerRegistration
	// begun is set once the controller has its first passes, for which nothing needs to be told.
	begun atomic.Bool
}

// Start implements source.Source.
func (s *Source) Start(ctx context.Context, q Queue) error {
	s.begun.Store(s.Namers == nil)
	s.Kinds.mu.Lock()
	s.Kinds.notify = func(c Change) {
		if !c.Listed || s.begun.Load() {
			s.Handle(ctx, c, q)
		}
	}
	s.Kinds.mu.Unlock()
	if s.Namers == nil {
		return nil
	}
	informer, err := s.Namers.GetInformer(ctx, s.Namer, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("see which kinds are named: %w", err)
	}
	s.namers, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.name,
		UpdateFunc: func(_, o any) { s.name(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if namer, ok := o.(client.Object); ok {
				s.Kinds.Forget(client.ObjectKeyFromObject(namer))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("see which kinds are named: %w", err)
	}
	return nil
}

func (s *Source) name(o any) {
	namer, ok := o.(client.Object)
	if !ok {
		return
	}
	if kind, names := s.KindOf(namer); names {
		s.Kinds.Name(client.ObjectKeyFromObject(namer), kind)
	} else {
		s.Kinds.Forget(client.ObjectKeyFromObject(namer))
	}
}

// WaitForSync implements source.SyncingSource. Kinds that can't be watched don't keep the
// controller from its start.
func (s *Source) WaitForSync(ctx context.Context) error {
	defer s.begun.Store(true)
	if s.Namers == nil {
		return nil
	}
	select {
	case <-s.namers.HasSyncedChecker().Done():
	case <-ctx.Done():
		return errors.New("not all that name kinds are known")
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, startPoll, true, func(context.Context) (bool, error) { return s.Kinds.settled(), nil })
	return nil
}
