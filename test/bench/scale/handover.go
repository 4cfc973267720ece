package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

const (
	// callEvery is how far apart wake calls are that are made while the leader or the resolvers change: 18,000 an
	// hour. Each wake is some ten calls of the API server, so that twice as many are a quarter of its work.
	callEvery = 200 * time.Millisecond
	// awakeFor is how long a service is awake then. No server comes there, and after five seconds the operator
	// would look why: in a cluster that works it doesn't.
	awakeFor = 4 * time.Second
)

// handover is a change of the leader.
type handover struct {
	// Elected is from when the leader is told to end until the other replica leads, and Done until that
	// has no more to do.
	Elected float64 `json:"elected_seconds"`
	Done    float64 `json:"done_seconds"`
	// These are at the new leader meanwhile.
	answers
}

func (f handover) String() string {
	return fmt.Sprintf("new leader   elected after %.1f s, done after %.1f s; %s", f.Elected, f.Done, f.answers)
}

func (a answers) String() string {
	return fmt.Sprintf("%d wake calls, %d failed: %s", a.Calls, a.Failed, a.Answer)
}

// slowest is how many slow calls are kept.
const slowest = 5

// slowCall is when a call was made, from when the first ones are, and how long it took.
type slowCall struct {
	At   float64 `json:"at_seconds"`
	Took float64 `json:"ms"`
}

// call is a wake call that was made.
type call struct {
	began time.Time
	took  time.Duration
}

// wokenAt is a service, and when it was woken.
type wokenAt struct {
	key client.ObjectKey
	at  time.Time
}

// slowestOf are the slowest of the calls.
func slowestOf(calls []call, from time.Time) (out []slowCall) {
	byTime := slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(b.took, a.took) })
	for _, c := range byTime[:min(slowest, len(byTime))] {
		out = append(out, slowCall{At: rounded(c.began.Sub(from).Seconds()), Took: rounded(float64(c.took) / float64(time.Millisecond))})
	}
	return out
}

// answers are how long wake calls took, and how many failed.
type answers struct {
	// Answer is how long they take, and Failed how many fail.
	Calls  int       `json:"wake_calls"`
	Failed int       `json:"wake_calls_failed"`
	Answer quantiles `json:"wake_call_answer_ms"`
	// Slowest are the calls that took longest, the longest first.
	Slowest []slowCall `json:"slowest_wake_calls"`
}

// meanwhile makes wake calls at an address while something is done, if there are services.
func meanwhile(ctx context.Context, c *cluster.Cluster, s *services, address string, do func(ctx context.Context) error) (f answers, err error) {
	if s == nil {
		return f, do(ctx)
	}
	w, err := newWaker(c)
	if err != nil {
		return f, err
	}
	calling, stop := context.WithCancel(ctx)
	defer stop()
	var calls []call
	var group sync.WaitGroup
	began := time.Now()
	woken := make(chan wokenAt, 4*awakeFor/callEvery) // as good as without a bound
	group.Go(func() {
		for one := range woken {
			if wait(calling, time.Until(one.at.Add(awakeFor))) == nil {
				_ = s.scaleToZero(calling, one.key) // sleepAgain does it, too
			}
		}
	})
	group.Go(func() {
		defer close(woken)
		for i := 0; wait(calling, callEvery) == nil; i = (i + 1) % s.count {
			one := call{began: time.Now()}
			if err := w.call(ctx, address, keyOf(i)); err != nil {
				f.Failed++
			}
			one.took = time.Since(one.began)
			calls = append(calls, one)
			woken <- wokenAt{keyOf(i), one.began}
		}
	})
	err = do(ctx)
	stop()
	group.Wait()
	took := make([]time.Duration, 0, len(calls))
	for _, c := range calls {
		took = append(took, c.took)
	}
	f.Calls, f.Answer, f.Slowest = len(calls), quantilesOf(took), slowestOf(calls, began)
	return f, err
}

// handOver ends the leader while services are woken, if there are any.
func handOver(ctx context.Context, c *cluster.Cluster, s *services) (f handover, err error) {
	f.answers, err = meanwhile(ctx, c, s, c.StandbyAddress(), func(ctx context.Context) error {
		began := time.Now()
		if err := c.StopLeader(); err != nil {
			return err
		}
		elected, done, err := c.AwaitLeader(ctx, c.StandbyAddress(), began)
		f.Elected, f.Done = rounded(elected.Seconds()), rounded(done.Seconds())
		return err
	})
	return f, err
}
