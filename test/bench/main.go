// Command bench measures Dormouse and writes its figures to bin/bench.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"dormouse.dev/dormouse/test/env"
)

// options are what flags say.
type options struct {
	runs, slow, clients, services, calls int
}

// benchmark is one that can be run by its name. Its figures become
// bin/bench/<name>.json.
type benchmark struct {
	name, help string
	run        func(context.Context, *env.Env, options) (any, error)
}

var benchmarks = []benchmark{
	{"wake", "time from a player's packet to the sleeping server, by stage", benchWake},
	{"abuse", "how the wake endpoint bears bad calls, and what good ones take meanwhile", benchAbuse},
	{"files", "time from the first packet of SFTP to its prompt, and how fast files go", benchFiles},
	{"restart", "time until all sleeping services know of a resolver pod that replaces another", benchRestart},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 30, "wake: how many wakes are measured")
	flags.IntVar(&o.slow, "slow", 10, "wake: how many wakes are measured of games that boot for 3 to 8 seconds")
	flags.IntVar(&o.clients, "clients", 500, "wake: how many clients connect at once to one sleeping server")
	flags.IntVar(&o.calls, "calls", 200_000, "abuse: how many bad calls are made")
	flags.IntVar(&o.services, "services", 2000, "restart: how many services sleep")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: bench [flags] benchmark")
		for _, b := range benchmarks {
			fmt.Fprintf(flags.Output(), "  %-8s %s\n", b.name, b.help)
		}
		fmt.Fprintln(flags.Output(), "flags:")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if o.runs < 1 || o.clients < 1 || o.services < 1 || o.calls < 1 {
		return errors.New("-runs, -clients, -services and -calls must be at least 1")
	}
	for _, b := range benchmarks {
		if flags.NArg() != 1 || flags.Arg(0) != b.name {
			continue
		}
		e, err := env.Local(ctx, os.Stderr)
		if err != nil {
			return err
		}
		figures, err := b.run(ctx, e, o)
		if err != nil {
			return err
		}
		return write(filepath.Join(e.Repo, "bin", "bench", b.name+".json"), figures)
	}
	return fmt.Errorf("want the name of one benchmark (see -help); got %q", flags.Args())
}

func write(path string, figures any) error {
	text, err := json.MarshalIndent(figures, "", "  ")
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
