package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/sidecars"
)

const (
	// settleTime bounds the time until all sidecars are held and nothing is left to do.
	settleTime = 20 * time.Minute
	// stillFor is how long nothing must have been written then.
	stillFor = 10 * time.Second
	// drainTime bounds the time until all are told of a drain.
	drainTime = time.Minute
)

// figures are what report.json has.
type figures struct {
	Sidecars   int     `json:"sidecars"`
	Processors int     `json:"processors"`
	Seconds    float64 `json:"seconds"`
	// Idle is while no game has anything new to say, Changing while the players of
	// 5 % of them change every ten seconds.
	Idle     phase `json:"idle"`
	Changing phase `json:"changing"`
	// Drained is from the call that drains a Server until its sidecar is told, Called
	// how long the API server takes for that call, and Told how long after its answer
	// the sidecar is told: below zero where it was before.
	Drains  int     `json:"drains"`
	Drained drained `json:"drain_to_told_ms"`
	Called  drained `json:"drain_call_ms"`
	Noticed drained `json:"drain_answer_to_told_ms"`
	// Watched is how long after that answer the API server tells a watch of it.
	Watched drained `json:"drain_answer_to_watched_ms"`
	// Own is from that event until the sidecar is told: the operator's own part.
	Own drained `json:"drain_watched_to_told_ms"`
	// FailedCalls are sidecars' calls that failed in all.
	FailedCalls int64 `json:"failed_calls"`
}

type phase struct {
	Cores   float64 `json:"operator_cores"`
	RSS     float64 `json:"operator_rss_mib"`
	Reports float64 `json:"reports_per_second"`
	Writes  float64 `json:"status_writes_per_second"`
	Held    float64 `json:"held"`
}

type drained struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func measureAll(ctx context.Context, o options) (err error) {
	c, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	say("making %d Servers", o.sidecars)
	all, err := c.makeGames(ctx, o.sidecars)
	if err != nil {
		return err
	}
	say("starting %d sidecars in %d processes", o.sidecars, o.processes)
	p, err := sidecars.Start(ctx, c.address, o.processes, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	for _, s := range all {
		if err := p.Play(s); err != nil {
			return err
		}
	}
	if err := c.settle(ctx, p, o.sidecars); err != nil {
		return err
	}
	f := figures{Sidecars: o.sidecars, Processors: runtime.NumCPU(), Seconds: o.measure.Seconds(), Drains: o.drains}
	say("measuring for %s", o.measure)
	if f.Idle, err = c.during(ctx, o.measure); err != nil {
		return err
	}
	say("measuring for %s while players change", o.measure)
	if err := p.Change(); err != nil {
		return err
	}
	if f.Changing, err = c.during(ctx, o.measure); err != nil {
		return err
	}
	say("draining %d Servers", o.drains)
	if err := c.measureDrains(ctx, p, all, &f); err != nil {
		return err
	}
	var why string
	if f.FailedCalls, why = p.Failures(); f.FailedCalls > 0 {
		say("%d calls failed, the last one because of: %s", f.FailedCalls, why)
	}
	fmt.Printf("%d sidecars, one operator replica:\n", f.Sidecars)
	fmt.Printf("  nothing new       %s\n", f.Idle)
	fmt.Printf("  players change    %s\n", f.Changing)
	fmt.Printf("  drain -> told     %s\n", f.Drained)
	fmt.Printf("    of it the call  %s\n", f.Called)
	fmt.Printf("    after its answer %s\n", f.Noticed)
	fmt.Printf("    a watch's event  %s\n", f.Watched)
	fmt.Printf("    event -> told    %s\n", f.Own)
	return write(o.output, f)
}

func (d drained) String() string {
	return fmt.Sprintf("p50 %.1f ms   p99 %.1f ms   max %.1f ms", d.P50, d.P99, d.Max)
}

func (p phase) String() string {
	return fmt.Sprintf("%.3f cores   %.0f MiB   %.0f reports/s   %.1f writes/s   %.0f held", p.Cores, p.RSS, p.Reports, p.Writes, p.Held)
}

// settle waits until the sidecars' reports are held, nothing is written for one, and
// the controllers have done all that there was to do.
func (c *cluster) settle(ctx context.Context, p *sidecars.Processes, count int) error {
	var last sample
	still, said := time.Now(), time.Now()
	return process.Until(ctx, settleTime, "all sidecars are held and nothing is left to do", func() (bool, error) {
		if time.Since(last.at) < time.Second {
			return false, nil // asking costs the operator
		}
		s, err := c.sample(ctx)
		if err != nil {
			return false, err
		}
		// On a slow machine a wave of reports may be under way at any moment.
		if s.writes != last.writes || s.held < 0.5*float64(count) || s.queued > 0 {
			still = time.Now()
		}
		last = s
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			failed, why := p.Failures()
			say("%.0f of %d are held, %.0f writes, %.0f Servers to look at, %d failed calls %s", s.held, count, s.writes, s.queued, failed, why)
		}
		return time.Since(still) > stillFor, nil
	})
}

// during measures for some time.
func (c *cluster) during(ctx context.Context, d time.Duration) (phase, error) {
	before, err := c.sample(ctx)
	if err != nil {
		return phase{}, err
	}
	select {
	case <-ctx.Done():
		return phase{}, ctx.Err()
	case <-time.After(d):
	}
	after, err := c.sample(ctx)
	if err != nil {
		return phase{}, err
	}
	took := after.at.Sub(before.at).Seconds()
	round := func(f float64) float64 { return math.Round(f*1000) / 1000 }
	return phase{
		Cores:   round((after.processor - before.processor).Seconds() / took),
		RSS:     round(after.rss),
		Reports: round((after.reports - before.reports) / took),
		Writes:  round((after.writes - before.writes) / took),
		Held:    after.held,
	}, nil
}

func (c *cluster) measureDrains(ctx context.Context, p *sidecars.Processes, played []sidecars.Sidecar, f *figures) error {
	var names []string
	for i := range f.Drains {
		names = append(names, played[i*len(played)/f.Drains].Server)
	}
	var mu sync.Mutex
	watched := map[string]time.Time{}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	err := c.watchDrains(watching, func(name string, at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if watched[name].IsZero() {
			watched[name] = at
		}
	})
	if err != nil {
		return err
	}
	calls, err := c.drain(ctx, names)
	if err != nil {
		return err
	}
	err = process.Until(ctx, drainTime, "every sidecar was told of its drain", func() (bool, error) { return len(p.Noticed(names)) == f.Drains, nil })
	if err != nil {
		return err
	}
	var all, called, after []time.Duration
	for name, at := range p.Noticed(names) {
		c := calls[name]
		all, called, after = append(all, at.Sub(c.made)), append(called, c.answered.Sub(c.made)), append(after, at.Sub(c.answered))
	}
	mu.Lock()
	defer mu.Unlock()
	var seen, own []time.Duration
	notice := p.Noticed(names)
	for name, at := range watched {
		seen, own = append(seen, at.Sub(calls[name].answered)), append(own, notice[name].Sub(at))
	}
	f.Watched, f.Own = drainedOf(seen), drainedOf(own)
	f.Drained, f.Called, f.Noticed = drainedOf(all), drainedOf(called), drainedOf(after)
	return nil
}

func drainedOf(took []time.Duration) drained {
	if len(took) == 0 {
		return drained{}
	}
	slices.Sort(took)
	rank := func(q float64) float64 {
		d := took[max(int(math.Ceil(q*float64(len(took))))-1, 0)]
		return math.Round(float64(d)/float64(time.Microsecond)) / 1000
	}
	return drained{rank(0.5), rank(0.99), rank(1)}
}

// sample is what the operator and the kernel say of it.
type sample struct {
	at                    time.Time
	processor             time.Duration
	rss                   float64 // MiB
	reports, writes, held float64
	queued                float64 // by the controllers
}

func (c *cluster) sample(ctx context.Context) (sample, error) {
	select {
	case err := <-c.ended:
		c.ended <- err
		return sample{}, fmt.Errorf("the operator ended, and its log is in %s: %w", c.dir, err)
	default:
	}
	s := sample{at: time.Now()}
	used, err := process.Used(c.operator.Process.Pid)
	if err != nil {
		return s, err
	}
	s.processor, s.rss = used.Processor, used.RSS
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/metrics", nil)
	if err != nil {
		return s, fmt.Errorf("build a request: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, fmt.Errorf("read the operator's metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return s, fmt.Errorf("read the operator's metrics: %w", err)
	}
	s.reports = sum(families["dormouse_reports_total"])
	s.writes = sum(families["dormouse_report_writes_total"])
	s.held = sum(families["dormouse_reports_held"])
	s.queued = sum(families["workqueue_depth"])
	return s, nil
}

func sum(family *dto.MetricFamily) float64 {
	total := 0.0
	for _, m := range family.GetMetric() {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

func write(path string, f figures) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	fmt.Println("figures are in", path)
	return nil
}
