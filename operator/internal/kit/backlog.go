package kit

import (
	"context"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Backlog asks for passes of many objects, a few at a time and in turn. A change that matters to
// all objects would fill a controller's queue otherwise, and the pass that somebody waits for
// would come after those of all others.
type Backlog struct {
	// most is how many of its objects are in the controller's queue or have a pass.
	most int

	mu    sync.Mutex
	queue queue // nil before the controller starts
	// line are the objects whose turn is to come. Those that aren't in waiting any more have had
	// a pass since.
	line    []reconcile.Request
	waiting map[reconcile.Request]struct{}
	// taken are the objects that were put into the controller's queue.
	taken map[reconcile.Request]struct{}
}

// NewBacklog makes a Backlog that takes up so many of a controller's workers at most.
func NewBacklog(most int) *Backlog {
	return &Backlog{most: most, waiting: map[reconcile.Request]struct{}{}, taken: map[reconcile.Request]struct{}{}}
}

// Source gives the Backlog the controller's queue.
func (b *Backlog) Source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue = q
		b.next()
		return nil
	})
}

// Add asks for a pass of each object. One that waits already keeps its turn.
func (b *Backlog) Add(requests ...reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range requests {
		if _, ok := b.waiting[r]; !ok {
			b.waiting[r] = struct{}{}
			b.line = append(b.line, r)
		}
	}
	b.next()
}

// Len is how many passes were asked for and haven't ended.
func (b *Backlog) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) + len(b.taken)
}

// Begin is called when a pass of an object begins, and what it returns when the pass has ended.
// A pass for another reason does for one that was asked for here. One that is to come again before it does
// anything hasn't ended.
func (b *Backlog) Begin(r reconcile.Request) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, r)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.taken, r)
		b.next()
	}
}

// Took reports whether an object is one of the few that were put into the controller's queue here and whose
// pass hasn't ended.
func (b *Backlog) Took(r reconcile.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.taken[r]
	return ok
}

// Coming are objects whose passes are under way or come next, some of them at most.
func (b *Backlog) Coming(most int) []reconcile.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Collect(maps.Keys(b.taken))
	// Others, of which there may be thousands, had a pass for another reason.
	for _, r := range b.line[:min(len(b.line), 4*most)] {
		if len(list) >= most {
			break
		}
		if _, ok := b.waiting[r]; ok {
			list = append(list, r)
		}
	}
	return list
}

// next hands objects to the controller while it has few of them.
func (b *Backlog) next() {
	for b.queue != nil && len(b.line) > 0 && len(b.taken) < b.most {
		r := b.line[0]
		b.line = b.line[1:]
		if _, ok := b.waiting[r]; ok {
			delete(b.waiting, r)
			b.taken[r] = struct{}{}
			b.queue.Add(r)
		}
	}
}
