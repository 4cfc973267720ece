package raising

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/operator/internal/kit"
)

const (
	// longest is how long a raise counts from its turn on, and how long any work waits: wakes without end
	// delay it, and don't stop it.
	longest = 500 * time.Millisecond
	// storm is how long after raises began to be under way some work waits for the last of them. 500
	// wakes within a second are over by then, with two processors for all. Raises that go on for longer
	// are no storm, but what is usual there, or meant to hold others up.
	storm = 3 * time.Second
	// comeAgain is when work comes again at the earliest: a single raise is over by then.
	comeAgain = 20 * time.Millisecond
)

// Work is what lets raises go first.
type Work int

const (
	// Prompt is work that somebody may wait for. It waits for half a second at most.
	Prompt Work = iota
	// Patient is what nobody waits for during a storm, such as the work of services that sleep or wake:
	// their clients wait for pods. It waits for three seconds at most.
	Patient
	// Urgent is what scales up by itself what clients wait for, or lets them go on, such as the work of
	// services that wake together. It doesn't wait.
	Urgent
)

// left is how long work that has waited so long has yet to wait at most; 0: it may go on.
func (r *Raises) left(w Work, waited time.Duration) time.Duration {
	if w == Urgent {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over == nil {
		return 0
	}
	left := longest - waited
	if w == Patient {
		left = max(left, min(storm-time.Since(r.since), storm-waited))
	}
	return max(left, 0)
}

// Wait blocks work until no raise is under way, those that come meanwhile included, or it has waited
// long enough.
func (r *Raises) Wait(ctx context.Context, w Work) {
	if r == nil || r.under.Load() == 0 {
		return
	}
	left := r.left(w, 0)
	if left == 0 {
		return
	}
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if over == nil {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Again is when work that has waited so long is to ask again; 0: it may go on. It asks less often the
// longer it waits, so that asking takes no time from a storm, and not all comes at once after it.
func (r *Raises) Again(w Work, waited time.Duration) time.Duration {
	if r == nil {
		return 0
	}
	return min(max(waited, comeAgain), r.left(w, waited))
}

// Passes let raises go first and take up no worker of their controller meanwhile: each is told to come
// again.
type Passes struct {
	// Raises are those that go first.
	Raises *Raises

	mu sync.Mutex
	// since is when a pass that is to come again came first.
	since map[types.NamespacedName]time.Time
}

// Again is when an object's pass is to come again, and then it must; 0: it may go on. Its kind of work is
// asked for only while raises are under way.
func (p *Passes) Again(of types.NamespacedName, work func() Work) (again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Raises == nil || p.Raises.under.Load() == 0 {
		delete(p.since, of)
		return 0
	}
	now := time.Now()
	since, waits := p.since[of]
	if !waits {
		since = now
	}
	if waited := now.Sub(since); p.Raises.left(Patient, waited) > 0 {
		again = p.Raises.Again(work(), waited)
	}
	switch {
	case again == 0:
		delete(p.since, of)
	case p.since == nil:
		p.since = map[types.NamespacedName]time.Time{of: since}
	default:
		p.since[of] = since
	}
	return again
}

// waits reports whether an object's pass is to come again.
func (p *Passes) waits(of types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.since[of]
	return ok
}

// Limiter is the rate limiter of the passes' controller. A pass that is told to come again did nothing, and
// how often the ones before it failed is remembered.
func (p *Passes) Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return limiter{kit.Limiter(), p}
}

type limiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	passes *Passes
}

// Forget implements workqueue.TypedRateLimiter.
func (l limiter) Forget(r reconcile.Request) {
	if !l.passes.waits(r.NamespacedName) {
		l.TypedRateLimiter.Forget(r)
	}
}
