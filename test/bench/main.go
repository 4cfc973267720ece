// Command bench measures Dormouse on the local cluster and writes its figures
// to bin/bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"dormouse.dev/dormouse/test/env"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	runs := flags.Int("runs", 30, "how many wakes are measured")
	fanIn := flags.Int("clients", 500, "how many clients connect at once to one sleeping server")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: bench [flags] wake\n\n  time from a player's packet to the sleeping server, by stage\n\nflags:")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if flags.NArg() != 1 || flags.Arg(0) != "wake" {
		return fmt.Errorf("want one benchmark, wake; got %q", flags.Args())
	}
	if *runs < 1 || *fanIn < 1 {
		return errors.New("-runs and -clients must be at least 1")
	}
	e, err := env.Local(ctx, os.Stderr)
	if err != nil {
		return err
	}
	return benchWake(ctx, e, *runs, *fanIn, filepath.Join(e.Repo, "bin", "bench", "wake.json"))
}
