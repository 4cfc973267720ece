package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

// callEvery is how far apart wake calls are that are made while the leader changes: 18,000 an hour.
const callEvery = 200 * time.Millisecond

// handover is a change of the leader.
type handover struct {
	// Elected is from when the leader is told to end until the other replica leads, and Done until that
	// has no more to do.
	Elected float64 `json:"elected_seconds"`
	Done    float64 `json:"done_seconds"`
	// Answer is how long wake calls take at the new leader meanwhile, and Failed how many fail.
	Calls  int       `json:"wake_calls"`
	Failed int       `json:"wake_calls_failed"`
	Answer quantiles `json:"wake_call_answer_ms"`
	// Slowest are the calls that took longest, the longest first.
	Slowest []slowCall `json:"slowest_wake_calls"`
}

func (f handover) String() string {
	return fmt.Sprintf("new leader   elected after %.1f s, done after %.1f s; %d wake calls, %d failed: %s", f.Elected, f.Done, f.Calls, f.Failed, f.Answer)
}

// slowest is how many slow calls are kept.
const slowest = 5

// slowCall is when a call was made, from when the leader is told to end, and how long it took.
type slowCall struct {
	At   float64 `json:"at_seconds"`
	Took float64 `json:"ms"`
}

// call is a wake call that was made.
type call struct {
	began time.Time
	took  time.Duration
}

// slowestOf are the slowest of the calls.
func slowestOf(calls []call, from time.Time) (out []slowCall) {
	byTime := slices.SortedFunc(slices.Values(calls), func(a, b call) int { return cmp.Compare(b.took, a.took) })
	for _, c := range byTime[:min(slowest, len(byTime))] {
		out = append(out, slowCall{At: rounded(c.began.Sub(from).Seconds()), Took: rounded(float64(c.took) / float64(time.Millisecond))})
	}
	return out
}

// handOver ends the leader while services are woken, if there are any.
func handOver(ctx context.Context, c *cluster.Cluster, s *services) (f handover, err error) {
	calling, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer stop()
	var calls []call
	if s != nil {
		w, err := newWaker(c)
		if err != nil {
			return f, err
		}
		group.Go(func() {
			for i := 0; wait(calling, callEvery) == nil; i = (i + 1) % s.count {
				one := call{began: time.Now()}
				if err := w.call(ctx, c.StandbyAddress(), keyOf(i)); err != nil {
					f.Failed++
				}
				one.took = time.Since(one.began)
				calls = append(calls, one)
			}
		})
	}
	began := time.Now()
	if err := c.StopLeader(); err != nil {
		return f, err
	}
	elected, done, err := c.AwaitLeader(ctx, c.StandbyAddress(), began)
	f.Elected, f.Done = rounded(elected.Seconds()), rounded(done.Seconds())
	if err != nil {
		return f, err
	}
	stop()
	group.Wait()
	answers := make([]time.Duration, 0, len(calls))
	for _, c := range calls {
		answers = append(answers, c.took)
	}
	f.Calls, f.Answer, f.Slowest = len(calls), quantilesOf(answers), slowestOf(calls, began)
	return f, nil
}
