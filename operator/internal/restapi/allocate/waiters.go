package allocate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// waiters are the calls that wait, by the Allocation that they wait for.
type waiters struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[*waiter]struct{}
}

// waiter is a call that waits. It sees what the cache sees from when it began.
type waiter struct {
	mu sync.Mutex
	// seen are the Allocations of the name; nil: one that was deleted.
	seen map[types.UID]*v1alpha1.Allocation
	news chan struct{}
}

func (w *waiters) begin(key types.NamespacedName) (*waiter, func()) {
	one := &waiter{seen: map[types.UID]*v1alpha1.Allocation{}, news: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[key] == nil {
		w.all[key] = map[*waiter]struct{}{}
	}
	w.all[key][one] = struct{}{}
	return one, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all[key], one)
		if len(w.all[key]) == 0 {
			delete(w.all, key)
		}
	}
}

// see tells those who wait for an Allocation of it.
func (w *waiters) see(o *v1alpha1.Allocation, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all[client.ObjectKeyFromObject(o)] {
		one.see(o, deleted)
	}
}

func (w *waiter) see(o *v1alpha1.Allocation, deleted bool) {
	w.mu.Lock()
	if w.seen[o.UID] = o; deleted {
		w.seen[o.UID] = nil
	}
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// latest is an Allocation as it was last seen, and whether it was deleted.
func (w *waiter) latest(o *v1alpha1.Allocation) (latest *v1alpha1.Allocation, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen, ok := w.seen[o.UID]
	switch {
	case !ok:
		return o, false
	case seen == nil:
		return o, true
	}
	return seen, false
}

// OnAdd, OnUpdate and OnDelete implement toolscache.ResourceEventHandler.
func (w *waiters) OnAdd(o any, _ bool) {
	if a, ok := o.(*v1alpha1.Allocation); ok {
		w.see(a, false)
	}
}

// OnUpdate implements toolscache.ResourceEventHandler. An object that was deleted and made again may
// come as an update.
func (w *waiters) OnUpdate(before, now any) {
	a, ok1 := before.(*v1alpha1.Allocation)
	b, ok2 := now.(*v1alpha1.Allocation)
	if ok1 && ok2 && a.UID != b.UID {
		w.see(a, true)
	}
	if ok2 {
		w.see(b, false)
	}
}

// OnDelete implements toolscache.ResourceEventHandler.
func (w *waiters) OnDelete(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if a, ok := o.(*v1alpha1.Allocation); ok {
		w.see(a, true)
	}
}
