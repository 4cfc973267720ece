// Package trigger reads the numbers that tell how busy a service is. It asks in
// the background, at a steady pace for each awake service, and remembers since
// when all of a service's triggers have been below their thresholds.
package trigger

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Bounds of the pace at which a service's triggers are asked.
const (
	MinInterval = time.Second
	MaxInterval = 10 * time.Second
)

// maxAtOnce bounds the requests under way from this operator.
const maxAtOnce = 64

// Reading is what is known of a service's triggers.
type Reading struct {
	// At is when they were last asked; zero before the first answer.
	At time.Time
	// BelowSince is since when all have been below their thresholds without a
	// gap; zero while one is not.
	BelowSince time.Time
	// Err says which trigger could not be read and why; nil when all were.
	Err error
}

// Service is what is asked: the triggers of one ElasticService and its pods.
type Service struct {
	Triggers []v1alpha1.Trigger
	Pods     []string // addresses
	// Every is how often they are asked.
	Every time.Duration
}

// Poller asks the triggers of awake services.
type Poller struct {
	ask     func(ctx context.Context, pods []string, t v1alpha1.Trigger) (float64, error)
	notify  func(types.NamespacedName)
	now     func() time.Time
	permits *semaphore.Weighted

	mu     sync.Mutex
	ctx    context.Context
	polled map[types.NamespacedName]*polled
}

type polled struct {
	service Service
	reading Reading
	cancel  context.CancelFunc
	// sooner says that the pace went up.
	sooner chan struct{}
}

// NewPoller makes a Poller. notify is called after a reading changed from busy
// to idle or back, or from healthy to failing or back.
func NewPoller(notify func(types.NamespacedName)) *Poller {
	return &Poller{
		ask:     askHTTP,
		notify:  notify,
		now:     time.Now,
		permits: semaphore.NewWeighted(maxAtOnce),
		polled:  map[types.NamespacedName]*polled{},
	}
}

// Start keeps the poller's work alive until ctx ends.
func (p *Poller) Start(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Read gives the last reading and sees to it that the triggers are asked on.
// Changed triggers forget what was read before.
func (p *Poller) Read(key types.NamespacedName, s Service) Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.polled[key]; known != nil {
		if equality.Semantic.DeepEqual(known.service.Triggers, s.Triggers) {
			if s.Every < known.service.Every {
				select {
				case known.sooner <- struct{}{}:
				default:
				}
			}
			known.service = s
			return known.reading
		}
		known.cancel()
		delete(p.polled, key)
	}
	if p.ctx == nil {
		return Reading{}
	}
	ctx, cancel := context.WithCancel(p.ctx)
	entry := &polled{service: s, cancel: cancel, sooner: make(chan struct{}, 1)}
	p.polled[key] = entry
	go p.run(ctx, key, entry)
	return Reading{}
}

// Idle asks now, and says whether every trigger could be read and is below its
// threshold.
func (p *Poller) Idle(ctx context.Context, s Service) bool {
	reading := p.poll(ctx, s, Reading{})
	return reading.Err == nil && !reading.BelowSince.IsZero()
}

// Forget stops asking for a service, which sleeps or is gone.
func (p *Poller) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.polled[key]; known != nil {
		known.cancel()
		delete(p.polled, key)
	}
}

func (p *Poller) run(ctx context.Context, key types.NamespacedName, entry *polled) {
	defer utilruntime.HandleCrash()
	for {
		p.mu.Lock()
		s, before := entry.service, entry.reading
		p.mu.Unlock()

		after := p.poll(ctx, s, before)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		entry.reading = after
		p.mu.Unlock()
		if before.At.IsZero() || before.BelowSince.IsZero() != after.BelowSince.IsZero() || (before.Err == nil) != (after.Err == nil) {
			p.notify(key)
		}

		select {
		case <-ctx.Done():
			return
		case <-entry.sooner:
		case <-time.After(min(max(s.Every, MinInterval), MaxInterval)):
		}
	}
}

func (p *Poller) poll(ctx context.Context, s Service, before Reading) Reading {
	after := Reading{At: p.now(), BelowSince: before.BelowSince}
	busy := false
	var errs []error
	for _, t := range s.Triggers {
		if err := p.permits.Acquire(ctx, 1); err != nil {
			return before
		}
		value, err := p.ask(ctx, s.Pods, t)
		p.permits.Release(1)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		busy = busy || value >= float64(t.HTTP.Threshold)
	}
	after.Err = errors.Join(errs...)
	switch {
	case busy || after.Err != nil:
		after.BelowSince = time.Time{}
	case after.BelowSince.IsZero():
		after.BelowSince = after.At
	}
	return after
}
