package autoscaler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watchRetry is how often a watch of ScaledObjects is attempted while the API server has none.
const watchRetry = 10 * time.Second

// watch is the one watch of ScaledObjects, which begins when the first is asked for. Clusters
// without KEDA have none. Until it has all of them they are read from the API server.
type watch struct {
	cache cache.Cache
	live  client.Reader

	mu       sync.Mutex
	informer cache.Informer
	// absent is why there is none, as it was at tried.
	absent error
	tried  time.Time
	// changed is told which ScaledObject has changed; nil before the controller starts.
	changed func(client.ObjectKey)
}

// newWatch makes a watch, with a cache of its own: the manager's begins with kinds that are
// there.
func newWatch(mgr ctrl.Manager, namespaces map[string]cache.Config) (*watch, error) {
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:        mgr.GetHTTPClient(),
		Scheme:            mgr.GetScheme(),
		Mapper:            mgr.GetRESTMapper(),
		DefaultNamespaces: namespaces,
		DefaultTransform:  slim,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the cache of ScaledObjects: %w", err)
	}
	return &watch{cache: c, live: mgr.GetAPIReader()}, nil
}

// Start implements manager.Runnable.
func (w *watch) Start(ctx context.Context) error {
	if err := w.cache.Start(ctx); err != nil {
		return fmt.Errorf("cache ScaledObjects: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica takes wake calls.
func (w *watch) NeedLeaderElection() bool { return false }

// get reads a ScaledObject; watched: a change of it will be told.
func (w *watch) get(ctx context.Context, key client.ObjectKey) (u *unstructured.Unstructured, watched bool, err error) {
	informer, err := w.begun(ctx)
	if err != nil {
		return nil, false, err
	}
	u = newScaledObject(key)
	if informer.HasSynced() {
		if err := w.cache.Get(ctx, key, u); err != nil {
			return nil, true, fmt.Errorf("read ScaledObject %s: %w", key, err)
		}
		return u, true, nil
	}
	u, err = w.read(ctx, key)
	return u, false, err
}

// read reads a ScaledObject from the API server.
func (w *watch) read(ctx context.Context, key client.ObjectKey) (*unstructured.Unstructured, error) {
	u := newScaledObject(key)
	if err := w.live.Get(ctx, key, u); err != nil {
		return nil, fmt.Errorf("read ScaledObject %s: %w", key, err)
	}
	return u, nil
}

// begun begins the watch, once. Its error says why it can't be, and is remembered for a while:
// many services may ask.
func (w *watch) begun(ctx context.Context) (cache.Informer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.informer != nil || time.Since(w.tried) < watchRetry {
		return w.informer, w.absent
	}
	late := w.absent != nil
	informer, err := w.cache.GetInformer(ctx, newScaledObject(client.ObjectKey{}), cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				// Who asked for one before the kind was there is told of those that came with it.
				if !initial || late {
					w.tell(o)
				}
			},
			UpdateFunc: func(before, after any) {
				// KEDA writes its status with each look at its triggers.
				a, ok1 := before.(*unstructured.Unstructured)
				b, ok2 := after.(*unstructured.Unstructured)
				if !ok1 || !ok2 || decode(a) != decode(b) {
					w.tell(after)
				}
			},
			DeleteFunc: w.tell,
		})
	}
	w.tried = time.Now()
	if err != nil {
		w.absent = fmt.Errorf("watch ScaledObjects: %w", err)
		return nil, w.absent
	}
	w.informer, w.absent = informer, nil
	return informer, nil
}

func (w *watch) tell(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	w.mu.Lock()
	changed := w.changed
	w.mu.Unlock()
	if u, ok := o.(*unstructured.Unstructured); ok && changed != nil {
		changed(client.ObjectKeyFromObject(u))
	}
}

// source asks for passes of the objects that find returns for a ScaledObject that has changed.
func (w *watch) source(find func(context.Context, client.ObjectKey) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed = func(key client.ObjectKey) {
			for _, request := range find(ctx, key) {
				q.Add(request)
			}
		}
		return nil
	})
}
