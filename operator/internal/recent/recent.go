// Package recent remembers answers for a short while, so that many who ask the same thing cause
// one question. It knows nothing of what is asked.
package recent

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Answers are the answers to questions, by key. Keep must be set.
type Answers[K comparable, V any] struct {
	// Keep is how long an answer is remembered after its question was begun.
	Keep time.Duration

	mu    sync.Mutex
	all   map[K]*answer[V]
	swept time.Time
}

type answer[V any] struct {
	begun time.Time
	// done is closed once value and err are there.
	done  chan struct{}
	value V
	err   error
}

// Get returns the answer to a question that was begun at a time or later. If there is none it
// asks, and never twice at once for a key. The question goes on when ctx ends, for whoever comes
// next, so it must end by itself. An error of ctx is returned as it is.
func (a *Answers[K, V]) Get(ctx context.Context, key K, since time.Time, ask func(context.Context) (V, error)) (V, error) {
	for {
		got := a.begin(ctx, key, since, ask)
		select {
		case <-got.done:
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx)
		}
		if !got.begun.Before(since) {
			return got.value, got.err
		}
		// It was begun too early, and is over now: the next one is new.
	}
}

// begin returns a question that is asked, or answered lately enough.
func (a *Answers[K, V]) begin(ctx context.Context, key K, since time.Time, ask func(context.Context) (V, error)) *answer[V] {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.sweep(now)
	if got := a.all[key]; got != nil && (!got.over() || !got.begun.Before(since)) {
		return got
	}
	// Somebody may want an answer from a moment that has yet to come by this clock.
	if now.Before(since) {
		now = since
	}
	got := &answer[V]{begun: now, done: make(chan struct{})}
	a.all[key] = got
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(got.done)
		defer utilruntime.HandleCrash()
		got.value, got.err = ask(ctx)
	}()
	return got
}

// sweep forgets old answers, now and then.
func (a *Answers[K, V]) sweep(now time.Time) {
	if a.all == nil {
		a.all = map[K]*answer[V]{}
	}
	if now.Sub(a.swept) < a.Keep {
		return
	}
	a.swept = now
	for key, got := range a.all {
		if got.over() && now.Sub(got.begun) > a.Keep {
			delete(a.all, key)
		}
	}
}

func (a *answer[V]) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
