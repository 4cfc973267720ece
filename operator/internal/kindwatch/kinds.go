package kindwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// steady is how long a watch must have gone well for what was before to be forgotten: one whose
// list is allowed and whose watch isn't begins well each time.
const steady = time.Minute

// Options are what is watched of kinds.
type Options struct {
	// Namespaces are those that are watched; empty: all.
	Namespaces map[string]cache.Config
	// Whole has objects watched as unstructured.Unstructured; otherwise it is their metadata.
	Whole bool
	// Typed has objects of some kinds watched as a type of the caller's, which a scheme of its own has for the
	// kind. They are decoded from JSON. A nil scheme, or a nil Typed: as Whole says.
	Typed func(schema.GroupVersionKind) (*runtime.Scheme, client.Object)
	// Scalable has only kinds watched that have a scale.
	Scalable bool
	// Transform has what is kept of an object; nil: all of it.
	Transform toolscache.TransformFunc
	// Differ reports whether an update of an object is to be told; nil: each is.
	Differ func(before, after client.Object) bool
	// Most bounds how many kinds are watched at once, besides the Usual ones.
	Most int
	// Usual are kinds that don't count towards Most.
	Usual []schema.GroupVersionKind
	// Namer is one of the objects of the manager's cache that name kinds, each by KindOf, or none;
	// nil: whoever calls Name does.
	Namer  client.Object
	KindOf func(client.Object) (schema.GroupVersionKind, bool)
	// Grant says for the log which right to grant for a kind that the operator may not watch.
	Grant func(schema.GroupVersionKind) string

	// watch is another one in tests.
	watch  watchFunc
	namers cache.Informers
	log    logr.Logger
}

// watchFunc watches a kind until ctx ends, which is no error, or until it can't be watched.
type watchFunc func(ctx context.Context, kind schema.GroupVersionKind, on events) error

// events are what a watch tells.
type events struct {
	// synced is called once all objects can be read.
	synced func(client.Reader)
	// changed is called with an object that was changed, is gone, or listed when the watch began.
	changed func(o client.Object, listed bool)
}

// Change is one of an object of a watched kind.
type Change struct {
	Kind schema.GroupVersionKind
	// Object is what is kept of it after the change, or was before it was deleted. It is nil where
	// a watch that was lost is back: then Namer is one who names the kind, whose object may be gone.
	Object client.Object
	Namer  types.NamespacedName
	// Listed is set where it was there when the watch began.
	Listed bool
}

// Kinds watches the kinds that are named.
type Kinds struct {
	options Options
	// stirred has an element when there is something to decide.
	stirred chan struct{}
	// namersListed is closed once all namers that were there at the start have named their kinds.
	namersListed chan struct{}

	mu sync.RWMutex
	// named are the kinds by who names them.
	named map[types.NamespacedName]schema.GroupVersionKind
	kinds map[schema.GroupVersionKind]*kind
	// notify takes the changes; nil before a controller starts.
	notify func(Change)
	// lately is what has begun.
	lately burst
}

// kind is one kind.
type kind struct {
	observed
	state State
	// logged is the state that was logged last, besides Excess.
	logged       State
	excessLogged bool
	// lost is set when a watch that had all objects has ended for an error.
	lost bool
	// err is why it isn't watched.
	err error
	// syncedAt is since when reader has all objects; nil: it hasn't.
	syncedAt time.Time
	reader   client.Reader
	// stop ends the watch.
	stop context.CancelFunc
}

// New makes Kinds, which the manager is to run.
func New(mgr ctrl.Manager, name string, options Options) (*Kinds, error) {
	api, err := newAPI(mgr, options)
	if err != nil {
		return nil, err
	}
	options.watch, options.namers, options.log = api.watch, mgr.GetCache(), mgr.GetLogger().WithName(name)
	api.options.log = options.log
	k := newKinds(options)
	if err := mgr.Add(k); err != nil {
		return nil, fmt.Errorf("add the watches of %s: %w", name, err)
	}
	return k, nil
}

func newKinds(options Options) *Kinds {
	return &Kinds{
		options: options, stirred: make(chan struct{}, 1), namersListed: make(chan struct{}),
		named: map[types.NamespacedName]schema.GroupVersionKind{}, kinds: map[schema.GroupVersionKind]*kind{},
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: who names kinds decides.
func (k *Kinds) NeedLeaderElection() bool { return false }

// Name has a kind watched for as long as somebody names it. Each names one kind at a time.
func (k *Kinds) Name(by types.NamespacedName, gvk schema.GroupVersionKind) {
	k.mu.RLock()
	is, ok := k.named[by]
	k.mu.RUnlock()
	if ok && is == gvk {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unname(by)
	k.named[by] = gvk
	of := k.kinds[gvk]
	if of == nil {
		of = &kind{state: Beginning}
		k.kinds[gvk] = of
	}
	of.named++
	k.stir()
}

// Forget has somebody name no kind any more.
func (k *Kinds) Forget(by types.NamespacedName) {
	k.mu.RLock()
	_, ok := k.named[by]
	k.mu.RUnlock()
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unname(by)
	k.stir()
}

func (k *Kinds) unname(by types.NamespacedName) {
	gvk, ok := k.named[by]
	if !ok {
		return
	}
	delete(k.named, by)
	if of := k.kinds[gvk]; of != nil {
		if of.named--; of.named == 0 {
			of.unnamedSince = time.Now()
		}
	}
}

// Get reads an object of a kind out of the watch; false: the kind isn't watched, or not all of its
// objects are known yet. A nil Kinds watches nothing.
func (k *Kinds) Get(ctx context.Context, key client.ObjectKey, o client.Object) (watched bool, err error) {
	if k == nil {
		return false, nil
	}
	gvk := o.GetObjectKind().GroupVersionKind()
	k.mu.RLock()
	var reader client.Reader
	if of := k.kinds[gvk]; of != nil {
		reader = of.reader
	}
	k.mu.RUnlock()
	if reader == nil {
		return false, nil
	}
	err = reader.Get(ctx, key, o)
	if errors.Is(err, errUnwatched) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read %s %s: %w", gvk.Kind, key, err)
	}
	return true, nil
}

// Problem is why a kind isn't watched; nil: it is, or nobody knows yet.
func (k *Kinds) Problem(gvk schema.GroupVersionKind) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if of := k.kinds[gvk]; of != nil {
		return of.err
	}
	return nil
}

// Count is how many kinds are in each state.
func (k *Kinds) Count() map[State]int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	counts := map[State]int{}
	for _, of := range k.kinds {
		counts[of.state]++
	}
	return counts
}

// settled reports whether it is known of each usual kind that is named whether it can be watched.
// Anybody may name others, and those keep nobody waiting.
func (k *Kinds) settled() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return !slices.ContainsFunc(k.options.Usual, func(gvk schema.GroupVersionKind) bool {
		of := k.kinds[gvk]
		return of != nil && of.state == Beginning
	})
}

func (k *Kinds) stir() {
	select {
	case k.stirred <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (k *Kinds) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	if k.options.Namer != nil {
		if err := k.followNamers(ctx, &watches); err != nil {
			return err
		}
	}
	for {
		var again <-chan time.Time
		if next := k.step(ctx, &watches); !next.IsZero() {
			again = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.stirred:
		case <-again:
		}
	}
}

// step does what decide decides, and returns when to do that again.
func (k *Kinds) step(ctx context.Context, watches *sync.WaitGroup) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[schema.GroupVersionKind]observed, len(k.kinds))
	for gvk, of := range k.kinds {
		all[gvk] = of.observed
	}
	d := decide(time.Now(), all, k.options.Usual, k.options.Most, k.lately)
	k.lately = d.burst
	for _, gvk := range slices.Concat(d.end, d.forget) {
		if of := k.kinds[gvk]; of.open {
			of.stop()
			k.options.log.Info("nothing names the kind any more: its watch ends", "kind", gvk.String())
		}
		delete(k.kinds, gvk)
	}
	for _, gvk := range d.excess {
		k.kinds[gvk].state = Excess
		k.log(gvk, k.kinds[gvk])
	}
	for _, gvk := range d.begin {
		of := k.kinds[gvk]
		watching, stop := context.WithCancel(ctx)
		of.open, of.stop = true, stop
		if of.state == Excess {
			of.state = Beginning
		}
		watches.Go(func() {
			defer utilruntime.HandleCrash()
			defer stop()
			k.ended(gvk, of, k.options.watch(watching, gvk, k.eventsOf(gvk, of)))
		})
	}
	return d.next
}

func (k *Kinds) eventsOf(gvk schema.GroupVersionKind, of *kind) events {
	return events{
		synced: func(reader client.Reader) {
			for _, by := range k.synced(gvk, of, reader) {
				k.tell(Change{Kind: gvk, Namer: by, Listed: true})
			}
		},
		changed: func(o client.Object, listed bool) {
			k.tell(Change{Kind: gvk, Object: o, Listed: listed})
		},
	}
}

// synced takes in that a watch has all objects, and gives those who name the kind if there was one
// before that was lost: nobody else tells of what was deleted meanwhile.
func (k *Kinds) synced(gvk schema.GroupVersionKind, of *kind, reader client.Reader) (namers []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of.lost {
		for by, named := range k.named {
			if named == gvk && by.Name != "" {
				namers = append(namers, by)
			}
		}
	}
	of.reader, of.state, of.err, of.syncedAt = reader, Watched, nil, time.Now()
	of.synced, of.lost, of.excessLogged = true, false, false
	k.log(gvk, of)
	return namers
}

func (k *Kinds) tell(c Change) {
	k.mu.RLock()
	notify := k.notify
	k.mu.RUnlock()
	if notify != nil {
		notify(c)
	}
}

// ended takes in that a kind's watch has ended, and why.
func (k *Kinds) ended(gvk schema.GroupVersionKind, of *kind, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if !of.syncedAt.IsZero() && now.Sub(of.syncedAt) >= steady {
		of.tries, of.logged = 0, Watched
	}
	of.lost = of.lost || err != nil && !of.syncedAt.IsZero()
	of.open, of.synced, of.reader, of.syncedAt = false, false, nil, time.Time{}
	of.tries, of.tried = of.tries+1, now
	if err != nil { // otherwise nobody needs it any more
		of.err, of.state = err, stateOf(err)
		k.log(gvk, of)
	}
	k.stir()
}

// log logs the state of a kind once. That a kind isn't there, or isn't suited, its objects' own
// conditions say.
func (k *Kinds) log(gvk schema.GroupVersionKind, of *kind) {
	log := k.options.log.WithValues("kind", gvk.String())
	if of.state == Excess {
		if !of.excessLogged {
			log.Info("too many kinds are watched already: a change of this one shows late, and each pass reads the API server", "most", k.options.Most)
		}
		of.excessLogged = true
		return
	}
	// Where a list is allowed and a watch isn't, each begins well.
	if of.logged == of.state || of.state == Watched && of.logged == Forbidden {
		return
	}
	of.logged = of.state
	switch of.state {
	case Watched:
		log.Info("watch the kind")
	case Forbidden:
		grant := ""
		if k.options.Grant != nil {
			grant = k.options.Grant(gvk)
		}
		log.Info("the operator may not list and watch the kind: until it may, a change shows late, and each pass reads the API server", "grant", grant)
	case Failed:
		log.Info("the kind can't be watched just now", "error", of.err.Error())
	case Unknown, Unsuited, Beginning, Excess:
	}
}
