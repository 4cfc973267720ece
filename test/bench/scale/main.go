// Command scale measures what many Servers and many sleeping services cost: a real control plane,
// nodes that KWOK plays, the operator's and the resolver's own binaries, and sidecars' long polls
// from several processes, all in a network namespace of its own. No game runs. Its figures are in
// bin/bench/scale.json.
//
// A run goes through phases, which run.go has in their order, and phase.go measures each. Package cluster
// has the programs, package audit counts what the API server was asked, and package sidecars plays the
// sidecars.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/test/bench/scale/cluster"
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
	// leaders is how often the leader changes.
	leaders int
	output  string
	// memory is the operator's GOMEMLIMIT.
	memory string
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
	flags.IntVar(&o.leaders, "leaders", 1, "how often the leader changes in that phase")
	flags.StringVar(&o.memory, "memory", "900MiB", "GOMEMLIMIT of the operator, which is this as it is shipped")
	flags.StringVar(&o.output, "output", "bin/bench/scale.json", "file for the figures")
	flags.StringVar(&o.play, sidecars.PlayFlag, "", "for this program's own use")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, err
	}
	if o.play != "" {
		return 0, sidecars.Play(ctx, o.play, os.Stdin, os.Stdout)
	}
	o.phases = strings.Split(phases, ",")
	if err := o.check(); err != nil {
		return 2, err
	}
	if !sandbox.In() {
		if err := cluster.Build(ctx, say); err != nil {
			return 1, err
		}
		return sandbox.Run(ctx, args)
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
	if o.servers < 0 || o.servers > maxFleet || o.services < 0 || o.servers+o.services == 0 || o.processes < 1 || o.leaders < 1 || o.hold < time.Second {
		return fmt.Errorf("-servers must be from 0 to %d, -services not below 0, one of them above, -processes and -leaders 1 or more, and -hold 1s or more", maxFleet)
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
	if need := uint64(max(o.servers, o.services) + 1000); files.Cur < need {
		return fmt.Errorf("this needs %d open files, and the limit is %d: raise it with ulimit -n, or take fewer", need, files.Cur)
	}
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
