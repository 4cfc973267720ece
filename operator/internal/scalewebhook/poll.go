package scalewebhook

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// minEvery is the shortest interval of questions.
	minEvery = time.Second
	// maxPolls bounds how many subjects are remembered. It is for callers' mistakes: the
	// GameAutoscalers themselves take more memory.
	maxPolls = 100000
)

// Subject is on whose behalf Poll asks: one policy of a GameAutoscaler. There is one question at a
// time for each.
type Subject struct {
	// Namespace and Name are the GameAutoscaler's.
	Namespace, Name string
	// Policy tells its policies apart, by name or number.
	Policy string
}

// object is the GameAutoscaler's key.
func (s Subject) object() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// Result is what Poll last heard.
type Result struct {
	// Time is when that was. It is zero, and Answer and Err mean nothing, until the first
	// question about the present endpoint has ended.
	Time time.Time
	// Answer is what the webhook wants, if Err is nil.
	Answer Answer
	// Err is an *Error that says why there is no answer.
	Err error
	// Pending is true while a question is in flight; Options.Done follows.
	Pending bool
	// Next is when Poll will ask again, if it is called then.
	Next time.Time
}

// poll is what is kept of a subject.
type poll struct {
	key endpointKey
	// round counts the endpoints that it had. An earlier one's answer is nobody's.
	round  int
	result Result
	// started is when the last question was; zero for none about this endpoint.
	started time.Time
	// cancel ends the question in flight; nil if there is none.
	cancel context.CancelFunc
	used   time.Time
	every  time.Duration
}

// Poll returns what the last question's answer was, and asks the next one if the last was longer
// ago than every and the endpoint's circuit lets it through. It never blocks: a controller
// calls it on each pass, and again when Options.Done names the subject, or at Result.Next. A changed
// endpoint is asked at once, and its former one's answer is forgotten.
//
// It keeps the Endpoint's and the Review's slices and maps until the question has ended: they must
// not be written to.
func (c *Client) Poll(s Subject, every time.Duration, e Endpoint, r Review) Result {
	every = max(every, minEvery)
	key := keyOf(r.Namespace, e)
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Result{Time: now, Err: cancelled(errClosed)}
	}
	c.sweepPolls(now)
	p := c.polls[s]
	if p == nil {
		if len(c.polls) >= maxPolls {
			return Result{Time: now, Err: failure(Busy, "More than %d autoscalers ask webhooks", maxPolls), Next: now.Add(every)}
		}
		p = &poll{key: key}
		c.polls[s] = p
		c.subjects[s.object()] = append(c.subjects[s.object()], s)
	}
	if p.key != key {
		p.key, p.result, p.started = key, Result{}, time.Time{}
		p.round++
		if p.cancel != nil {
			p.cancel()
		}
	}
	p.used, p.every = now, every
	next := p.started.Add(every)
	if p.cancel == nil && !now.Before(next) {
		if open := c.endpoints.open(now, key); open != nil {
			p.fail(now, open)
			next = open.Until
		} else {
			c.start(s, p, e, r, now)
			next = now.Add(every)
		}
	}
	result := p.result
	result.Pending = p.cancel != nil
	result.Next = next
	switch {
	case !now.Before(next) && result.Pending: // Done comes before
		result.Next = now.Add(every)
	case !now.Before(next): // another subject's trial goes on
		result.Next = now.Add(minEvery)
	}
	return result
}

// fail takes an open circuit for the last question's outcome, once.
func (p *poll) fail(now time.Time, open *Error) {
	last, ok := errors.AsType[*Error](p.result.Err)
	if ok && last.Reason == CircuitOpen && last.Until.Equal(open.Until) {
		return
	}
	p.result = Result{Time: now, Err: open}
}

// start asks.
func (c *Client) start(s Subject, p *poll, e Endpoint, r Review, now time.Time) {
	ctx, cancel := context.WithCancel(c.ctx)
	p.cancel, p.started = cancel, now
	round := p.round
	c.wait.Go(func() {
		defer cancel()
		answer, err := c.Ask(ctx, e, r)
		c.mu.Lock()
		p.cancel = nil
		if p.round == round {
			p.result = Result{Time: c.clock.Now(), Answer: answer, Err: err}
		}
		wanted := c.polls[s] == p && !c.closed
		c.mu.Unlock()
		if wanted && c.options.Done != nil {
			c.options.Done(s)
		}
	})
}

// Forget ends and forgets the questions of a GameAutoscaler that is gone. Those that aren't
// polled any more are forgotten without it, later.
func (c *Client) Forget(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Clone(c.subjects[types.NamespacedName{Namespace: namespace, Name: name}]) {
		c.forget(s, c.polls[s])
	}
}

func (c *Client) forget(s Subject, p *poll) {
	delete(c.polls, s)
	of := s.object()
	if c.subjects[of] = slices.DeleteFunc(c.subjects[of], func(other Subject) bool { return other == s }); len(c.subjects[of]) == 0 {
		delete(c.subjects, of)
	}
	if p.cancel != nil {
		p.cancel()
	}
}

// sweepPolls forgets what isn't polled any more, once a minute at most.
func (c *Client) sweepPolls(now time.Time) {
	if now.Sub(c.swept) < time.Minute {
		return
	}
	c.swept = now
	for s, p := range c.polls {
		if now.Sub(p.used) > max(idleAfter, 2*p.every) {
			c.forget(s, p)
		}
	}
}
