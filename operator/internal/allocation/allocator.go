package allocation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=allocations,verbs=list;watch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=allocations/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=get;list;watch
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch

const (
	// writers is how many statuses are written at once.
	writers = 64
	// wakers is how many targets are woken at once, and wakeEvery is how often one is, while somebody
	// waits for it and it sleeps. A wake lasts longer than its calls: it lets the raises of others go
	// before its stamp, and has turns with them.
	wakers    = 64
	wakeEvery = time.Second
	// metricEvery is how often it is told how many wait.
	metricEvery = 5 * time.Second
)

// Waker wakes services.
type Waker interface {
	Wake(ctx context.Context, r informerapi.WakeRequest) (informerapi.WakeResponse, error)
}

// Options are what an Allocator needs.
type Options struct {
	// Cache has Allocations, Servers, ElasticServices and Nodes.
	Cache cache.Cache
	// Client writes to the API server.
	Client client.Client
	// Live reads from it: a leader begins with all Allocations that there are, and asks for Servers that Cache
	// may not have yet; nil: it believes Cache.
	Live client.Reader
	// Namespaces are those that count; empty: all.
	Namespaces []string
	// Waker wakes what sleeps.
	Waker Waker
	// Events takes the events for users.
	Events events.EventRecorder
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Allocations
	// Log takes errors that no user can fix.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time
}

// Allocator is a manager.Runnable of the leader. Its book is filled on every replica.
type Allocator struct {
	Options
	book  *book.Book
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// sooner wakes the loop of what is due.
	sooner chan struct{}
	// leads is closed once the book has all that the cache had, and decides.
	leads  chan struct{}
	synced []toolscache.ResourceEventHandlerRegistration

	servers, services passes

	mu     sync.Mutex
	waking map[types.NamespacedName]time.Time
	// under has the services whose wake is under way.
	under map[types.NamespacedName]bool
	slots chan struct{}
}

// New makes an Allocator and fills its book from the cache.
func New(ctx context.Context, o Options) (*Allocator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Allocator{
		Options: o, sooner: make(chan struct{}, 1), leads: make(chan struct{}),
		waking: map[types.NamespacedName]time.Time{}, under: map[types.NamespacedName]bool{}, slots: make(chan struct{}, wakers),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "allocation"}),
	}
	a.book = book.New(o.Now, book.Hooks{Decided: a.queue.Add, Held: a.servers.add, Unused: a.services.add, Wakes: a.look})
	return a, a.watch(ctx)
}

// watch has the book follow the cache.
func (a *Allocator) watch(ctx context.Context) error {
	for _, w := range []struct {
		object client.Object
		set    func(o any, listed bool)
		drop   func(o any)
	}{
		{&v1alpha1.Server{}, given(func(o *v1alpha1.Server, _ bool) { a.book.SetServer(o) }), gone(a.book.DeleteServer)},
		{&v1alpha1.Allocation{}, given(a.book.SetAllocation), gone(a.book.DeleteAllocation)},
		{&v1alpha1.ElasticService{}, given(func(o *v1alpha1.ElasticService, _ bool) { a.book.SetService(o) }), gone(a.book.DeleteService)},
		{&corev1.Node{}, given(func(o *corev1.Node, _ bool) { a.book.SetNode(o.Name, o.Labels) }), gone(func(o *corev1.Node) { a.book.DeleteNode(o.Name) })},
	} {
		informer, err := a.Cache.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    w.set,
			UpdateFunc: func(_, o any) { w.set(o, false) },
			DeleteFunc: w.drop,
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.object, err)
		}
		a.synced = append(a.synced, registration)
	}
	return nil
}

func given[T any](f func(T, bool)) func(any, bool) {
	return func(o any, listed bool) {
		if object, ok := o.(T); ok {
			f(object, listed)
		}
	}
}

func gone[T any](f func(T)) func(any) {
	return func(o any) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if object, ok := o.(T); ok {
			f(object)
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: one decides.
func (*Allocator) NeedLeaderElection() bool { return true }

// Start decides and writes until ctx ends.
func (a *Allocator) Start(ctx context.Context) error {
	synced := make([]toolscache.InformerSynced, 0, len(a.synced))
	for _, registration := range a.synced {
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	// The cache may lag behind what the leader before has written last.
	if !a.catchUp(ctx) {
		return nil
	}
	a.book.Lead()
	close(a.leads)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			defer utilruntime.HandleCrash()
			for a.next(ctx) {
			}
		})
	}
	a.follow(ctx)
	a.queue.ShutDown()
	running.Wait()
	return nil
}

// catchUp takes in all Allocations as the API server has them, and reports whether it could before
// ctx ended.
func (a *Allocator) catchUp(ctx context.Context) bool {
	for a.Live != nil {
		a.book.CatchUp()
		err := a.list(ctx)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			a.Log.Error(err, "Allocations can't be read, and are given no Servers yet")
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(minRetry):
		}
	}
	return true
}

// page is how many Allocations are listed at once.
const page = 500

func (a *Allocator) list(ctx context.Context) error {
	namespaces := a.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		for more := ""; ; {
			var list v1alpha1.AllocationList
			if err := a.Live.List(ctx, &list, client.InNamespace(namespace), client.Limit(page), client.Continue(more)); err != nil {
				return fmt.Errorf("list Allocations: %w", err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				o.ManagedFields = nil
				a.book.SetAllocation(o, true)
			}
			if more = list.Continue; more == "" {
				break
			}
		}
	}
	return nil
}

// follow does what is due, and wakes what is waited for, until ctx ends.
func (a *Allocator) follow(ctx context.Context) {
	for {
		left := min(a.book.Tick(), metricEvery)
		a.Metrics.Pending(a.book.Pending())
		if a.wake(ctx) {
			left = min(left, wakeEvery)
		}
		timer := time.NewTimer(max(left, time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-a.sooner:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look has the loop look at once.
func (a *Allocator) look() {
	select {
	case a.sooner <- struct{}{}:
	default:
	}
}

// wake wakes what sleeps and is waited for, and reports whether there is anything.
func (a *Allocator) wake(ctx context.Context) bool {
	wakes := a.book.Wakes()
	for service, of := range wakes {
		if !a.begin(service) {
			continue
		}
		go func() {
			defer utilruntime.HandleCrash()
			defer a.end(service)
			select {
			case a.slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-a.slots }()
			_, err := a.Waker.Wake(ctx, informerapi.WakeRequest{Namespace: service.Namespace, Svc: service.Name, Count: 1})
			why := ""
			if err != nil {
				why = reasonOf(err)
			}
			a.book.Trouble(service.Namespace, of, why)
		}()
	}
	return len(wakes) > 0
}

// begin reports whether a service may be woken now: it is once in a while.
func (a *Allocator) begin(service types.NamespacedName) bool {
	now := a.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.under[service] || now.Sub(a.waking[service]) < wakeEvery {
		return false
	}
	for other, at := range a.waking {
		if now.Sub(at) > time.Minute {
			delete(a.waking, other)
		}
	}
	a.waking[service], a.under[service] = now, true
	return true
}

// end notes that a wake has ended.
func (a *Allocator) end(service types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.under, service)
}

// Servers asks the Servers' controller for a pass of each Server that is held or let go.
func (a *Allocator) Servers() source.Source { return a.servers.source() }

// Services asks the ElasticServices' controller for a pass of each whose target no Allocation uses any more.
func (a *Allocator) Services() source.Source { return a.services.source() }

// WaitSynced waits until it is known which Servers Allocations have.
func (a *Allocator) WaitSynced(ctx context.Context) error {
	select {
	case <-a.leads:
		return nil
	default:
	}
	select {
	case <-a.leads:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("learn which Servers Allocations have: %w", ctx.Err())
	}
}

// HolderOf is who has a Server.
func (a *Allocator) HolderOf(namespace, name string, uid types.UID) book.Holder {
	return a.book.HolderOf(namespace, name, uid)
}

// Withdraw asks for a Server that is about to be drained or deleted; see book.Book.
func (a *Allocator) Withdraw(namespace, name string) bool { return a.book.Withdraw(namespace, name) }

// UseOf is how a target is used.
func (a *Allocator) UseOf(namespace, kind, name string) book.Use {
	return a.book.UseOf(namespace, kind, name)
}

// Close asks for a target that is about to be put to sleep; see book.Book.
func (a *Allocator) Close(namespace, kind, name, resourceVersion string) bool {
	return a.book.Close(namespace, kind, name, resourceVersion)
}

// Free is how many of a target's Servers can be given as a whole.
func (a *Allocator) Free(namespace, kind, name string) int { return a.book.Free(namespace, kind, name) }
