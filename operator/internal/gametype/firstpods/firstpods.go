// Package firstpods knows when the Pods of a wake's first Servers have been made. A wake writes
// nothing else before that: side by side each write would take the API server's time from the
// Pod, for which a player waits. The Pods are made by the leader, and every replica answers wake
// calls, so they are seen by the watch that each has.
package firstpods

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// longest is how long the Pods are waited for by default: about three times as long as one usually takes. A
// Server whose disk is being filled, or that finds no host port, has none for long.
const longest = 25 * time.Millisecond

// Pods are those that wakes wait for. Nil waits for none.
type Pods struct {
	// Longest is how long they are waited for; 0: 25 ms.
	Longest time.Duration

	mu      sync.Mutex
	awaited map[client.ObjectKey]func()
}

// Watch sees the Pods of a cache.
func (p *Pods) Watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				p.made(client.ObjectKeyFromObject(pod))
			}
		}})
	}
	if err != nil {
		return fmt.Errorf("watch Pods for wakes: %w", err)
	}
	return nil
}

// Expect is told the Pods before their Servers are made. What it returns waits until so many of them are there,
// but not for long, and must be called.
func (p *Pods) Expect(pods []client.ObjectKey) (wait func(ctx context.Context, made int)) {
	if p == nil {
		return func(context.Context, int) {}
	}
	seen := make(chan struct{}, len(pods))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awaited == nil {
		p.awaited = map[client.ObjectKey]func(){}
	}
	for _, key := range pods {
		p.awaited[key] = func() { seen <- struct{}{} }
	}
	return func(ctx context.Context, made int) {
		defer p.forget(pods)
		timer := time.NewTimer(cmp.Or(p.Longest, longest))
		defer timer.Stop()
		for range made {
			select {
			case <-seen:
			case <-timer.C:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// made tells who waits for a Pod that it is there. It tells it once.
func (p *Pods) made(key client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tell, ok := p.awaited[key]; ok {
		delete(p.awaited, key)
		tell()
	}
}

func (p *Pods) forget(pods []client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range pods {
		delete(p.awaited, key)
	}
}
