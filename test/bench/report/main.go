// Command report measures how one operator replica bears the reports of many
// sidecars: a real API server, the operator's own binary, and sidecars' long polls
// from several processes, all over loopback. No game runs: what kubelet would say
// of one is written here. Its figures are in bin/bench/report.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/bench/sidecars"
)

// options are what flags say.
type options struct {
	sidecars, processes, drains int
	measure                     time.Duration
	output                      string
	// play is the operator's address in a process that plays sidecars.
	play string
}

// wholeRun bounds all of it.
const wholeRun = 40 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench report:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.IntVar(&o.sidecars, "sidecars", 10_000, "how many sidecars report")
	flags.IntVar(&o.processes, "processes", 4, "from how many processes")
	flags.IntVar(&o.drains, "drains", 200, "how many Servers are drained, ten a second")
	flags.DurationVar(&o.measure, "measure", time.Minute, "how long is measured")
	flags.StringVar(&o.output, "output", "bin/bench/report.json", "file for the figures")
	flags.StringVar(&o.play, sidecars.PlayFlag, "", "for this program's own use")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if o.play != "" {
		return sidecars.Play(ctx, o.play, os.Stdin, os.Stdout)
	}
	if o.sidecars < 1 || o.processes < 1 || o.drains < 1 || o.drains > o.sidecars || o.measure < time.Second {
		return errors.New("-sidecars, -processes and -drains must be at least 1, -drains not above -sidecars, and -measure at least 1s")
	}
	// A connection each, and one more of those that change.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("ask how many files may be open: %w", err)
	}
	if need := uint64(o.sidecars + o.sidecars/10 + 500); files.Cur < need {
		return fmt.Errorf("%d sidecars need %d open files, and the limit is %d: raise it with ulimit -n, or take fewer -sidecars", o.sidecars, need, files.Cur)
	}
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()
	return measureAll(ctx, o)
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}
