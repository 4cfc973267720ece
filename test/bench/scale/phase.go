package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/scale/audit"
	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

const (
	// settledFor is how long the operator must have written nothing for a phase to be over.
	settledFor = 3 * time.Second
	// settleTime bounds the time until then.
	settleTime = 10 * time.Minute
)

// phaseFigures are what a phase cost.
type phaseFigures struct {
	// Seconds is how long what was measured took, and WithRest until the operator had no more to
	// write either. All below is of that.
	Seconds  float64 `json:"seconds"`
	WithRest float64 `json:"seconds_until_settled"`
	// Programs are by name, Requests by user agent.
	Programs map[string]programFigures `json:"programs"`
	Requests audit.Requests            `json:"requests"`
	// Of the operator, without leases.
	Writes    int `json:"operator_writes"`
	Reads     int `json:"operator_reads"`
	Conflicts int `json:"operator_conflicts"`
}

type programFigures struct {
	Processor float64 `json:"processor_seconds"`
	RSS       float64 `json:"rss_mib"`
	Peak      float64 `json:"peak_mib"`
}

// phase measures what is done, until the operator has no more to write again.
func (r *run) phase(ctx context.Context, name string, do func(context.Context) error) (phaseFigures, error) {
	say("phase %s", name)
	began := time.Now()
	before, err := r.begin()
	if err != nil {
		return phaseFigures{}, err
	}
	if err := do(ctx); err != nil {
		return phaseFigures{}, fmt.Errorf("phase %s: %w", name, err)
	}
	f := phaseFigures{Seconds: rounded(time.Since(began).Seconds()), Requests: audit.Requests{}}
	still, err := settle(ctx, r.cluster, f.Requests)
	if err != nil {
		return f, fmt.Errorf("phase %s: %w", name, err)
	}
	f.WithRest = rounded(still.Sub(began).Seconds())
	return f, r.end(&f, before)
}

// settle waits until the operator has written nothing for some time, and gives since when. What is
// asked meanwhile is added.
func settle(ctx context.Context, c *cluster.Cluster, all audit.Requests) (since time.Time, err error) {
	since = time.Now()
	err = process.Until(ctx, settleTime, "the operator has no more to write", func() (bool, error) {
		if err := c.Alive(ctx); err != nil {
			return false, err
		}
		more, err := c.Audit.Next()
		if err != nil {
			return false, err
		}
		if writes, _, _ := more.Sum(cluster.OperatorName); writes > 0 {
			since = time.Now()
		}
		all.Merge(more)
		return time.Since(since) > settledFor, nil
	})
	return since, err
}

// begin forgets what was before a phase, and gives what each program has used.
func (r *run) begin() (map[string]process.Usage, error) {
	if _, err := r.cluster.Audit.Next(); err != nil {
		return nil, err
	}
	if err := r.cluster.ForgetPeaks(); err != nil {
		return nil, err
	}
	return r.usage()
}

// end notes what a phase cost.
func (r *run) end(f *phaseFigures, before map[string]process.Usage) error {
	after, err := r.usage()
	if err != nil {
		return err
	}
	f.Programs = map[string]programFigures{}
	for name, u := range after {
		f.Programs[name] = programFigures{
			Processor: rounded((u.Processor - before[name].Processor).Seconds()), RSS: rounded(u.RSS), Peak: rounded(u.Peak),
		}
	}
	f.Writes, f.Reads, f.Conflicts = f.Requests.Sum(cluster.OperatorName)
	return nil
}

// usage is what each program has used, and the benchmark itself with the sidecars that it plays.
func (r *run) usage() (map[string]process.Usage, error) {
	all, err := r.cluster.Usage()
	if err != nil {
		return nil, err
	}
	var own process.Usage
	for _, pid := range append(r.games.played.PIDs(), os.Getpid()) {
		u, err := process.Used(pid)
		if err != nil {
			return nil, err
		}
		own.Processor += u.Processor
		own.RSS += u.RSS
		own.Peak += u.Peak
	}
	all["benchmark"] = own
	return all, nil
}

// rounded is to three digits after the point.
func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }
