// Command scale measures what many Servers and many sleeping services cost: a real control plane,
// nodes that KWOK plays, the operator's and the resolver's own binaries, and sidecars' long polls
// from several processes, all in a network namespace of its own. No game runs. Its figures are in
// bin/bench/scale.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/test/bench/sidecars"
	"dormouse.dev/dormouse/test/sandbox"
)

const (
	// wholeRun bounds all of it, and phaseTime a part.
	wholeRun  = 3 * time.Hour
	phaseTime = 40 * time.Minute
	// sayEvery is how often a phase says how far it is.
	sayEvery = 5 * time.Second
	// maxFleet is how many Servers a Fleet may have.
	maxFleet = 10_000
)

// options are what flags say.
type options struct {
	servers, services, processes int
	hold                         time.Duration
	phases                       []string
	output                       string
	// play is the operator's address in a process that plays sidecars.
	play string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := start(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench scale:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}

func start(ctx context.Context, args []string) (code int, err error) {
	var o options
	var phases string
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.IntVar(&o.servers, "servers", 2000, "how many Servers")
	flags.IntVar(&o.services, "services", 2000, "how many sleeping services")
	flags.IntVar(&o.processes, "processes", 4, "how many processes play sidecars")
	flags.DurationVar(&o.hold, "hold", time.Minute, "how long is measured while nothing happens")
	flags.StringVar(&phases, "phases", strings.Join(allPhases, ","), "phases, in this order")
	flags.StringVar(&o.output, "output", "bin/bench/scale.json", "file for the figures")
	flags.StringVar(&o.play, sidecars.PlayFlag, "", "for this program's own use")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, nil // it was said
	}
	if o.play != "" {
		return 0, sidecars.Play(ctx, o.play, os.Stdin, os.Stdout)
	}
	o.phases = strings.Split(phases, ",")
	if err := o.check(); err != nil {
		return 2, err
	}
	if !sandbox.In() {
		if err := build(ctx); err != nil {
			return 1, err
		}
		return sandbox.Run(ctx)
	}
	log.SetLogger(logr.Discard()) // what clients say here is no news
	if err := sandbox.SetUp(); err != nil {
		return 1, err
	}
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()
	return 0, measureAll(ctx, o)
}

func (o *options) check() error {
	if o.servers < 0 || o.servers > maxFleet || o.services < 0 || o.servers+o.services == 0 || o.processes < 1 || o.hold < time.Second {
		return fmt.Errorf("-servers must be from 0 to %d, -services not below 0, one of them above, -processes 1 or more, and -hold 1s or more", maxFleet)
	}
	for _, phase := range o.phases {
		if !slices.Contains(allPhases, phase) {
			return fmt.Errorf("-phases has %q, and may have %s", phase, strings.Join(allPhases, ", "))
		}
	}
	// A connection from each sidecar, or a socket for each service.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("ask how many files may be open: %w", err)
	}
	if need := uint64(max(o.servers, o.services) + 1000); files.Cur < need { //nolint:gosec // not negative
		return fmt.Errorf("this needs %d open files, and the limit is %d: raise it with ulimit -n, or take fewer", need, files.Cur)
	}
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// run is one run of the benchmark.
type run struct {
	options
	cluster *cluster
	games   *games
	figures figures
}

// own are the benchmark's own processes.
func (r *run) own() []int {
	all := []int{os.Getpid()}
	if r.games != nil {
		all = append(all, r.games.played.PIDs()...)
	}
	return all
}

// Phases, in the order in which they are.
const (
	phaseUp   = "up"
	phaseHold = "hold"
	phaseDown = "down"
)

var allPhases = []string{phaseUp, phaseHold, phaseDown}

func measureAll(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "dormouse-bench-scale-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if err != nil && !errors.Is(err, context.Canceled) {
			say("what the programs said is in %s", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	c, err := startCluster(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.startOperator(ctx); err != nil {
		return err
	}
	r := &run{options: o, cluster: c, figures: figures{
		Servers: o.servers, Services: o.services, Processors: runtime.NumCPU(), Phases: map[string]phaseFigures{},
	}}
	if r.games, err = follow(ctx, c, o.processes); r.games != nil {
		defer func() { err = errors.Join(err, r.games.played.Stop()) }()
	}
	if err != nil {
		return err
	}
	if _, err := c.quiet(ctx, requests{}); err != nil {
		return err
	}
	for _, name := range allPhases {
		if !slices.Contains(o.phases, name) {
			continue
		}
		if r.figures.Phases[name], err = r.phase(ctx, name, r.parts()[name]); err != nil {
			return err
		}
		if name == phaseUp {
			if err := r.noteUp(ctx); err != nil {
				return err
			}
		}
	}
	r.figures.FailedCalls, _ = r.games.played.Failures()
	r.figures.print(os.Stdout, allPhases)
	return r.figures.write(o.output)
}

// parts are what is done in each phase.
func (r *run) parts() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		phaseUp:   func(ctx context.Context) error { return r.games.up(ctx, r.servers) },
		phaseHold: func(ctx context.Context) error { return wait(ctx, r.hold) },
		phaseDown: r.games.down,
	}
}

// noteUp notes what is to be seen of Servers that are up.
func (r *run) noteUp(ctx context.Context) error {
	took, _ := r.games.times()
	q := quantilesOf(took)
	r.figures.CreatedToReady = &q
	size, err := r.cluster.measureSizes(ctx, "servers")
	r.figures.ServerSize = &size
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
