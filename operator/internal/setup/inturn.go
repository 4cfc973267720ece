package setup

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turnTime bounds how long the others wait for one handler.
const turnTime = 10 * time.Second

// inTurn is a cache that tells one new event handler after the other what is there already. A new leader adds
// some ninety at once. Of tens of thousands of objects all of these together would have each wake call wait for
// a second, because whatever it does next would come after ninety others.
type inTurn struct {
	cache.Cache
	turn chan struct{}
}

func newInTurn(c cache.Cache) cache.Cache { return &inTurn{Cache: c, turn: make(chan struct{}, 1)} }

// GetInformer implements cache.Informers.
func (c *inTurn) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformer(ctx, o, opts...)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is the cache's own
	}
	return &informerInTurn{Informer: i, turn: c.turn}, nil
}

// GetInformerForKind implements cache.Informers.
func (c *inTurn) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformerForKind(ctx, kind, opts...)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is the cache's own
	}
	return &informerInTurn{Informer: i, turn: c.turn}, nil
}

type informerInTurn struct {
	cache.Informer
	turn chan struct{}
}

// AddEventHandler implements cache.Informer.
func (i *informerInTurn) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informerInTurn) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.Informer. Before the informer has its objects there is nothing to
// wait for.
func (i *informerInTurn) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if !i.HasSynced() {
		return i.Informer.AddEventHandlerWithOptions(h, o) //nolint:wrapcheck // it is the informer's own
	}
	i.turn <- struct{}{}
	added, err := i.Informer.AddEventHandlerWithOptions(h, o)
	if err != nil {
		<-i.turn
		return nil, err //nolint:wrapcheck // it is the informer's own
	}
	go func() {
		late := time.NewTimer(turnTime)
		defer late.Stop()
		select {
		case <-added.HasSyncedChecker().Done():
		case <-late.C: // the informer was stopped, or the handler waits for something
		}
		<-i.turn
	}()
	return added, nil
}
