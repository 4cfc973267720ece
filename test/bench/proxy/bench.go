package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/bench/proxy/traffic"
)

// figures are one proxy's of one round, or their medians, by measure and unit.
type figures map[string]float64

// bench is what a measure works with.
type bench struct {
	options
	dir, self string
	// all are the figures of all rounds by proxy.
	all map[string]map[string][]float64
}

// measureAll takes one measure after the other.
func measureAll(ctx context.Context, o options) (err error) {
	b := &bench{options: o, all: map[string]map[string][]float64{}}
	if b.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "bench-proxy-"); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	server, err := startProcess(ctx, "the server", b.self, traffic.ServerRole)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	if _, err := server.line(); err != nil {
		return err
	}
	for _, name := range o.measures {
		m, _ := find(name)
		say("measuring %s", m.help)
		if err := m.run(ctx, b); err != nil {
			return fmt.Errorf("measure %s: %w", name, err)
		}
	}
	medians := b.medians()
	show(os.Stdout, medians, o)
	if o.rounds < minRounds || len(o.measures) < len(measures) || len(o.proxies) < len(proxies) {
		say("no file is written of fewer than all measures and proxies, or %d rounds", minRounds)
		return nil
	}
	return write(o.output, medians)
}

// interleave takes a measure of one proxy after the other, each round. All run all
// the time; another one begins each round.
func (b *bench) interleave(ctx context.Context, udp bool, one func(proxy, *process) (figures, error)) (err error) {
	running := map[string]*process{}
	defer func() {
		for _, p := range running {
			err = errors.Join(err, p.stop())
		}
	}()
	var taking []proxy
	for _, p := range proxies {
		if !p.serves(udp) || !slices.Contains(b.proxies, p.name) {
			continue
		}
		taking = append(taking, p)
		if p.start == nil {
			continue
		}
		started, err := p.start(ctx, b.options, b.dir, p.relays())
		if started != nil {
			running[p.name] = started
		}
		if err != nil {
			return err
		}
	}
	for round := range b.rounds {
		for i := range taking {
			p := taking[(round+i)%len(taking)]
			f, err := one(p, running[p.name])
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", round+1, p.name, err)
			}
			b.note(p.name, f)
		}
	}
	return nil
}

func (b *bench) note(name string, f figures) {
	if b.all[name] == nil {
		b.all[name] = map[string][]float64{}
	}
	for unit, value := range f {
		b.all[name][unit] = append(b.all[name][unit], value)
	}
}

func (b *bench) medians() map[string]figures {
	medians := map[string]figures{}
	for name, all := range b.all {
		for unit, values := range all {
			if medians[unit] == nil {
				medians[unit] = figures{}
			}
			medians[unit][name] = median(values)
		}
	}
	return medians
}

// median is that of an odd number of values, and the lower of two middle ones else.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}

// players are the processes of one proxy's clients.
type players []*process

// start starts the clients of some jobs, spread over all processes, and returns once
// they are prepared.
func (b *bench) start(ctx context.Context, jobs ...traffic.Job) (all players, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, all.stop())
		}
	}()
	for i := range b.processes {
		for _, j := range jobs {
			share := j
			share.Count = (i+1)*j.Count/b.processes - i*j.Count/b.processes
			share.Rate = j.Rate / float64(b.processes)
			p, err := startProcess(ctx, "a process of clients", b.self, traffic.LoadRole)
			if err != nil {
				return all, err
			}
			all = append(all, p)
			text, err := json.Marshal(share)
			if err != nil {
				return all, fmt.Errorf("encode a job: %w", err)
			}
			if err := p.tell(text); err != nil {
				return all, err
			}
		}
	}
	for _, p := range all {
		if _, err := p.line(); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (l players) stop() error {
	var errs []error
	for _, p := range l {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// play has the clients do their jobs, and adds up what came of them. Cores is what
// the proxy used meanwhile, in seconds of processor time; 0 where there is none.
func (l players) play(of *process) (sum traffic.Outcome, cores float64, err error) {
	var before, after float64
	if of != nil {
		if before, err = of.processor(); err != nil {
			return sum, 0, err
		}
	}
	for _, p := range l {
		if err := p.tell([]byte("true")); err != nil {
			return sum, 0, err
		}
	}
	sum.Took = traffic.Histogram{}
	for _, p := range l {
		line, err := p.line()
		if err != nil {
			return sum, 0, err
		}
		var o traffic.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			return sum, 0, fmt.Errorf("read what came of a job: %w", err)
		}
		sum.Done += o.Done
		sum.Lost += o.Lost
		sum.Seconds = max(sum.Seconds, o.Seconds)
		sum.Took.Merge(o.Took)
	}
	if of != nil {
		if after, err = of.processor(); err != nil {
			return sum, 0, err
		}
	}
	return sum, after - before, nil
}

// once has clients do jobs from their start to their end.
func (b *bench) once(ctx context.Context, of *process, jobs ...traffic.Job) (sum traffic.Outcome, cores float64, err error) {
	l, err := b.start(ctx, jobs...)
	if err != nil {
		return sum, 0, err
	}
	sum, cores, err = l.play(of)
	return sum, cores, errors.Join(err, l.stop())
}

// write writes the figures with null where a proxy has none.
func write(path string, medians map[string]figures) error {
	out := map[string]map[string]*float64{}
	for unit, of := range medians {
		out[unit] = map[string]*float64{}
		for _, p := range proxies {
			out[unit][p.name] = nil
			if value, ok := of[p.name]; ok {
				out[unit][p.name] = &value
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	defer func() { _ = file.Close() }()
	buffered := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffered)
	encoder.SetIndent("", "  ")
	if err := errors.Join(encoder.Encode(out), buffered.Flush()); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	fmt.Println("figures are in", path)
	return nil
}

// per is how much of something there is for each of a number of units; not a number
// where there are none.
func per(amount, units float64) float64 {
	if units == 0 {
		return math.NaN()
	}
	return amount / units
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
