package kindwatch

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// followNamers has the objects of the manager's cache name kinds until ctx ends: on each replica, so
// that a new leader finds what it needs.
func (k *Kinds) followNamers(ctx context.Context, running *sync.WaitGroup) error {
	informer, err := k.options.namers.GetInformer(ctx, k.options.Namer, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("see which kinds are named: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    k.nameBy,
		UpdateFunc: func(_, o any) { k.nameBy(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if namer, ok := o.(client.Object); ok {
				k.Forget(client.ObjectKeyFromObject(namer))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("see which kinds are named: %w", err)
	}
	running.Go(func() {
		select {
		case <-registration.HasSyncedChecker().Done():
			close(k.namersListed)
		case <-ctx.Done():
		}
	})
	return nil
}

func (k *Kinds) nameBy(o any) {
	namer, ok := o.(client.Object)
	if !ok {
		return
	}
	if kind, names := k.options.KindOf(namer); names {
		k.Name(client.ObjectKeyFromObject(namer), kind)
	} else {
		k.Forget(client.ObjectKeyFromObject(namer))
	}
}
