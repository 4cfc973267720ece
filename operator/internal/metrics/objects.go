package metrics

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects are the objects of a kind, as a cache has them. A list of the cache would copy all of
// them for each scrape.
type objects[T client.Object] struct {
	mu  sync.Mutex
	all map[types.UID]T
}

// watch follows the objects of a kind in a cache. It doesn't wait for them.
func watch[T client.Object](ctx context.Context, informers cache.Informers, kind T) (*objects[T], error) {
	o := &objects[T]{all: map[types.UID]T{}}
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T for the metrics: %w", kind, err)
	}
	if _, err := informer.AddEventHandler(o); err != nil {
		return nil, fmt.Errorf("watch %T for the metrics: %w", kind, err)
	}
	return o, nil
}

// each calls look with each object, which must only be read.
func (o *objects[T]) each(look func(T)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, obj := range o.all {
		look(obj)
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (o *objects[T]) OnAdd(obj any, _ bool) { o.replace(nil, obj) }

// OnUpdate implements toolscache.ResourceEventHandler. An object that was deleted and made again
// may come as an update.
func (o *objects[T]) OnUpdate(before, now any) { o.replace(before, now) }

// OnDelete implements toolscache.ResourceEventHandler.
func (o *objects[T]) OnDelete(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o.replace(obj, nil)
}

// replace has now in the place of before; each may be nil.
func (o *objects[T]) replace(before, now any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, ok := before.(T); ok {
		delete(o.all, t.GetUID())
	}
	if t, ok := now.(T); ok {
		o.all[t.GetUID()] = t
	}
}
