package main

import (
	"context"
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
}

// handOver ends the leader while services are woken, if there are any.
func handOver(ctx context.Context, c *cluster.Cluster, s *services) (f handover, err error) {
	calling, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer stop()
	var answers []time.Duration
	if s != nil {
		w, err := newWaker(c)
		if err != nil {
			return f, err
		}
		group.Go(func() {
			for i := 0; wait(calling, callEvery) == nil; i = (i + 1) % s.count {
				began := time.Now()
				if err := w.call(ctx, cluster.StandbyAddress, keyOf(i)); err != nil {
					f.Failed++
				}
				answers = append(answers, time.Since(began))
			}
		})
	}
	began := time.Now()
	if err := c.StopLeader(); err != nil {
		return f, err
	}
	elected, done, err := c.AwaitLeader(ctx, cluster.StandbyAddress, began)
	f.Elected, f.Done = rounded(elected.Seconds()), rounded(done.Seconds())
	if err != nil {
		return f, err
	}
	stop()
	group.Wait()
	f.Calls, f.Answer = len(answers), quantilesOf(answers)
	return f, nil
}
