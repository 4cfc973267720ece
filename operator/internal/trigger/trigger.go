// Package trigger reads the numbers that show how busy a service is, of its pods and of Prometheus
// servers. It asks in the background, at a steady pace for each awake service, and remembers since
// when all of a service's triggers have been below their thresholds. Pods and servers that are slow
// to answer delay only those services that ask them.
package trigger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/fair"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/promquery"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
)

// Bounds of the pace at which a service's triggers are asked.
const (
	MinInterval = time.Second
	MaxInterval = 10 * time.Second
)

const (
	// maxAtOnce bounds the requests under way from this operator, and maxOfNamespace those
	// to one namespace's pods.
	maxAtOnce      = 256
	maxOfNamespace = 16
	// pollTime bounds how long all answers of a service's pods take together.
	pollTime = 5 * time.Second
)

// Reading is the state of a service's triggers.
type Reading struct {
	// At is when they were last asked: when the first of those questions was begun that the
	// reading is of. Zero before the first answer.
	At time.Time
	// BelowSince is since when all have been below their thresholds without a
	// gap; zero while one is not.
	BelowSince time.Time
	// Err is which trigger could not be read and why; nil when all were read.
	Err error
}

// Service is what to ask: the triggers of one ElasticService and its pods.
type Service struct {
	Triggers []v1alpha1.Trigger
	// Pods are the addresses of each. One is asked at the first that takes a connection.
	Pods [][]string
	// SleepAfter is how long it must be idle.
	SleepAfter time.Duration
	// Every is how often they are asked.
	Every time.Duration
}

// Poller asks the triggers of awake services.
type Poller struct {
	ask        func(ctx context.Context, namespace string, pod []string, t *v1alpha1.HTTPTrigger, access triggerauth.Access) (float64, error)
	prometheus Prometheus
	secrets    *triggerauth.Reader
	metrics    *metrics.Triggers
	notify     func(types.NamespacedName)
	now        func() time.Time
	permits    *fair.Permits
	transports outbound.Transports

	mu     sync.Mutex
	ctx    context.Context
	polled map[types.NamespacedName]*polled
}

type polled struct {
	service Service
	reading Reading
	cancel  context.CancelFunc
	// sooner is notified when the pace went up, or a reading is wanted.
	sooner chan struct{}
	// wanted is the time from which on ReadSince wants a reading; zero where it wants none.
	wanted time.Time
}

// Options are what a Poller needs.
type Options struct {
	// Prometheus answers the queries of triggers.
	Prometheus Prometheus
	// Secrets reads what is shown to pods.
	Secrets *triggerauth.Reader
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Triggers
	// Notify is called after a reading changed from busy to idle or back, from healthy to failing
	// or back, or from one error to another.
	Notify func(types.NamespacedName)
}

// NewPoller makes a Poller.
func NewPoller(o Options) *Poller {
	p := &Poller{
		prometheus: o.Prometheus,
		secrets:    o.Secrets,
		metrics:    o.Metrics,
		notify:     o.Notify,
		now:        time.Now,
		permits:    fair.New(maxAtOnce, maxOfNamespace),
		polled:     map[types.NamespacedName]*polled{},
	}
	p.ask = p.askPod
	return p
}

// Start keeps the poller's work alive until ctx ends.
func (p *Poller) Start(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Read returns the last reading and keeps the triggers being asked. Changed triggers discard
// earlier readings.
func (p *Poller) Read(key types.NamespacedName, s Service) Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read(key, s)
}

// ReadSince returns a reading that was begun at this time or later; false: there is none yet,
// and notify will be called when there is.
func (p *Poller) ReadSince(key types.NamespacedName, s Service, since time.Time) (Reading, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reading := p.read(key, s)
	polled := p.polled[key]
	switch {
	case !reading.At.IsZero() && !reading.At.Before(since):
		return reading, true
	case polled != nil:
		polled.wanted = since
		polled.hurry()
	}
	return Reading{}, false
}

func (p *Poller) read(key types.NamespacedName, s Service) Reading {
	if polled := p.polled[key]; polled != nil {
		if equality.Semantic.DeepEqual(polled.service.Triggers, s.Triggers) {
			if s.Every < polled.service.Every {
				polled.hurry()
			}
			polled.service = s
			return polled.reading
		}
		polled.cancel()
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

// hurry has a service asked at once.
func (e *polled) hurry() {
	select {
	case e.sooner <- struct{}{}:
	default:
	}
}

// Forget stops asking for a service, which sleeps or is gone.
func (p *Poller) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if polled := p.polled[key]; polled != nil {
		polled.cancel()
		delete(p.polled, key)
	}
}

func (p *Poller) run(ctx context.Context, key types.NamespacedName, entry *polled) {
	defer utilruntime.HandleCrash()
	for {
		p.mu.Lock()
		s, before, since := entry.service, entry.reading, entry.wanted
		p.mu.Unlock()

		if since.IsZero() {
			since = p.now().Add(-promquery.FreshFor)
		}
		after := p.poll(ctx, key.Namespace, s, before, since)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		entry.reading = after
		wanted := !entry.wanted.IsZero() && !after.At.Before(entry.wanted)
		if wanted {
			entry.wanted = time.Time{}
		}
		p.mu.Unlock()
		if wanted || before.At.IsZero() || before.BelowSince.IsZero() != after.BelowSince.IsZero() || said(before.Err) != said(after.Err) {
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

// said is what a condition has of an error.
func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// answers are the answers to a service's triggers.
type answers struct {
	mu   sync.Mutex
	sums []float64
	// oldest and newest are when the first and the last question was begun that has an answer.
	oldest, newest time.Time
	// err is the error whose text comes first, so that it is the same each time the same happens,
	// and failed counts all errors.
	err    error
	failed int
}

// asked tells when a question was begun.
func (a *answers) asked(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.oldest.IsZero() || at.Before(a.oldest) {
		a.oldest = at
	}
	if at.After(a.newest) {
		a.newest = at
	}
}

func (a *answers) take(trigger int, value float64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sums[trigger] += value
	if err != nil {
		if a.err == nil || err.Error() < a.err.Error() {
			a.err = err
		}
		a.failed++
	}
}

// poll asks all servers, and then all pods, for all triggers, side by side. Answers of servers are to questions that
// were begun at a time or later; they may have waited for their turn, and what the pods say would be old by then.
func (p *Poller) poll(ctx context.Context, namespace string, s Service, before Reading, since time.Time) Reading {
	after, first := Reading{BelowSince: before.BelowSince}, p.now()
	got := answers{sums: make([]float64, len(s.Triggers))}
	var asking sync.WaitGroup
	for i, t := range s.Triggers {
		switch {
		case t.HTTP != nil:
		case t.Prometheus != nil:
			asking.Go(func() {
				defer utilruntime.HandleCrash()
				timely, cancel := context.WithTimeout(ctx, prometheusTime)
				defer cancel()
				answer, err := p.askPrometheus(timely, namespace, s, t.Prometheus, since)
				if err == nil {
					got.asked(answer.At)
				}
				p.count(ctx, v1alpha1.TriggerPrometheus, err)
				got.take(i, answer.Number, err)
			})
		default:
			got.take(i, 0, fmt.Errorf("this operator knows no triggers of type %s", t.Type))
		}
	}
	asking.Wait()
	began := p.now()
	for i, t := range s.Triggers {
		if t.HTTP != nil {
			got.asked(began)
			asking.Go(func() { p.pollPods(ctx, namespace, s.Pods, i, t.HTTP, &got) })
		}
	}
	asking.Wait()
	if ctx.Err() != nil {
		return before
	}
	if got.oldest.IsZero() {
		got.asked(first)
	}
	after.At = got.oldest
	busy := false
	for i, t := range s.Triggers {
		if t.HTTP == nil && t.Prometheus == nil {
			continue
		}
		threshold, err := thresholdOf(t)
		if err != nil {
			got.take(i, 0, err)
		}
		busy = busy || got.sums[i] >= threshold
	}
	if after.Err = got.err; got.failed > 1 {
		after.Err = fmt.Errorf("%w (and %d more)", got.err, got.failed-1)
	}
	switch {
	case busy || after.Err != nil:
		after.BelowSince = time.Time{}
	case after.BelowSince.IsZero():
		// An older answer of one trigger says nothing of the others at that time.
		after.BelowSince = got.newest
	}
	return after
}

// pollPods asks all pods for one trigger, side by side.
func (p *Poller) pollPods(ctx context.Context, namespace string, pods [][]string, i int, t *v1alpha1.HTTPTrigger, got *answers) {
	defer utilruntime.HandleCrash()
	timely, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	late := outbound.Failure(outbound.Timeout, "the pods didn't all answer within %s", pollTime)
	access := triggerauth.Access{}
	if t.Auth != nil || t.TLS != nil {
		var err error
		if access, err = p.secrets.Access(timely, triggerauth.Request{Namespace: namespace, TLS: t.TLS, Auth: t.Auth}); err != nil {
			p.count(ctx, v1alpha1.TriggerHTTP, err)
			got.take(i, 0, err)
			return
		}
	}
	var asking sync.WaitGroup
	for _, pod := range pods {
		if err := p.permits.Acquire(timely, namespace); err != nil {
			p.count(ctx, v1alpha1.TriggerHTTP, late)
			got.take(i, 0, late)
			continue
		}
		asking.Go(func() {
			defer utilruntime.HandleCrash()
			defer p.permits.Release(namespace)
			value, err := p.ask(timely, namespace, pod, t, access)
			if err != nil && timely.Err() != nil {
				err = late
			}
			p.count(ctx, v1alpha1.TriggerHTTP, err)
			got.take(i, value, err)
		})
	}
	asking.Wait()
}

// count counts an answer, unless whoever asked doesn't want it any more.
func (p *Poller) count(ctx context.Context, of v1alpha1.TriggerType, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		p.metrics.Answered(of)
	default:
		p.metrics.Failed(of, outbound.ReasonOf(err))
	}
}
