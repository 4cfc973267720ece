package elasticservice

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/fair"
)

const (
	// looksAtOnce bounds how many looks are under way, and looksOfNamespace those for one
	// namespace's services.
	looksAtOnce      = 16
	looksOfNamespace = 2
	// lookPatience is how long a look waits for its turn. The next one comes by itself.
	lookPatience = diagnoseAtMost
)

// lookouts look why services have no server, beside the passes, so that no other service
// waits for them.
type lookouts struct {
	permits *fair.Permits
	// told is called once a look has found something.
	told func(types.NamespacedName)
	// run runs a look.
	run func(func())

	mu sync.Mutex
	// all are the looks under way, and those whose result nobody has taken yet.
	all map[types.UID]*lookout
}

// lookout is one look.
type lookout struct {
	done    bool
	finding diagnosis.Finding
	err     error
}

func newLookouts(told func(types.NamespacedName)) *lookouts {
	return &lookouts{
		permits: fair.New(looksAtOnce, looksOfNamespace), told: told, run: func(look func()) { go look() },
		all: map[types.UID]*lookout{},
	}
}

// start begins a look for a service, unless there is one.
func (l *lookouts) start(ctx context.Context, key types.NamespacedName, uid types.UID, look func(context.Context) (diagnosis.Finding, error)) {
	l.mu.Lock()
	if l.all[uid] != nil {
		l.mu.Unlock()
		return
	}
	begun := &lookout{}
	l.all[uid] = begun
	l.mu.Unlock()
	ctx = context.WithoutCancel(ctx) // the pass ends before
	l.run(func() {
		defer utilruntime.HandleCrash()
		finding, err := l.look(ctx, key.Namespace, look)
		l.mu.Lock()
		begun.done, begun.finding, begun.err = true, finding, err
		wanted := l.all[uid] == begun
		l.mu.Unlock()
		if wanted {
			l.told(key)
		}
	})
}

func (l *lookouts) look(ctx context.Context, namespace string, look func(context.Context) (diagnosis.Finding, error)) (diagnosis.Finding, error) {
	turn, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	if err := l.permits.Acquire(turn, namespace); err != nil {
		return diagnosis.Finding{}, err
	}
	defer l.permits.Release(namespace)
	ctx, stop := context.WithTimeout(ctx, diagnoseTime)
	defer stop()
	return look(ctx)
}

// take takes what a look has found; nil: nothing yet.
func (l *lookouts) take(uid types.UID) *lookout {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.all[uid]
	if o == nil || !o.done {
		return nil
	}
	delete(l.all, uid)
	return o
}

// forget drops a look, and what it will find.
func (l *lookouts) forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, uid)
}
