// Package lookout decides when to look why a service has no server, and runs such looks beside
// the passes, so that no other service waits for them. Package diagnosis interprets what a look
// has read. The controller does the reading.
package lookout

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/fair"
)

const (
	// looksAtOnce bounds how many looks are under way, and looksOfNamespace how many of them
	// for one namespace's services.
	looksAtOnce      = 16
	looksOfNamespace = 2
	// lookPatience is how long a look waits for its turn. The next one comes anyway.
	lookPatience = diagnoseAtMost
)

// Lookouts run looks beside the passes, so that no other service waits for them.
type Lookouts struct {
	permits *fair.Permits
	// notify is called once a look has found something.
	notify func(types.NamespacedName)
	// Run runs a look.
	Run func(func())

	mu sync.Mutex
	// all are the looks under way, and those whose finding has not been taken yet.
	all map[types.UID]*running
}

// running is one look.
type running struct {
	done    bool
	finding diagnosis.Finding
	err     error
}

// New makes Lookouts that call notify once a look has found something.
func New(notify func(types.NamespacedName)) *Lookouts {
	return &Lookouts{
		permits: fair.New(looksAtOnce, looksOfNamespace), notify: notify, Run: func(look func()) { go look() },
		all: map[types.UID]*running{},
	}
}

// start starts a look for a service, unless one is under way.
func (l *Lookouts) start(ctx context.Context, key types.NamespacedName, uid types.UID, look func(context.Context) (diagnosis.Finding, error)) {
	l.mu.Lock()
	if l.all[uid] != nil {
		l.mu.Unlock()
		return
	}
	begun := &running{}
	l.all[uid] = begun
	l.mu.Unlock()
	ctx = context.WithoutCancel(ctx) // the pass ends earlier
	l.Run(func() {
		defer utilruntime.HandleCrash()
		finding, err := l.look(ctx, key.Namespace, look)
		l.mu.Lock()
		begun.done, begun.finding, begun.err = true, finding, err
		wanted := l.all[uid] == begun
		l.mu.Unlock()
		if wanted {
			l.notify(key)
		}
	})
}

func (l *Lookouts) look(ctx context.Context, namespace string, look func(context.Context) (diagnosis.Finding, error)) (diagnosis.Finding, error) {
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

// take takes a look's finding; nil: there is none yet.
func (l *Lookouts) take(uid types.UID) *running {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.all[uid]
	if o == nil || !o.done {
		return nil
	}
	delete(l.all, uid)
	return o
}

// Forget drops a look, and what it will find.
func (l *Lookouts) Forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, uid)
}
