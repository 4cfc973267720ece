// Command chaos plays against Dormouse on the local cluster while faults
// happen, and writes its figures to bin/bench/chaos.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/chaos"
	"dormouse.dev/dormouse/test/chaos/schedule"
	"dormouse.dev/dormouse/test/env"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	duration := flags.Duration("duration", 10*time.Minute, "how long players come and faults happen")
	seed := flags.Uint64("seed", 0, "what chance goes by; 0 is a random one")
	names := flags.String("faults", "", "only these kinds of faults, comma separated; empty is all of them")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	only, err := parseKinds(*names)
	if err != nil {
		return err
	}
	if *seed == 0 {
		*seed = uint64(rand.Uint32())
	}
	e, err := env.Local(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "seed %d, %s\n", *seed, *duration)
	report, err := chaos.Run(ctx, e, chaos.Options{Seed: *seed, Duration: *duration, Kinds: only, Progress: os.Stderr})
	if report == nil || err != nil {
		return err
	}
	report.Print(os.Stdout)
	path := filepath.Join(e.Repo, "bin", "bench", "chaos.json")
	if err := report.Write(path); err != nil {
		return err
	}
	fmt.Println("figures are in", path)
	if report.Failed() {
		return fmt.Errorf("the run failed; its seed is %d", *seed)
	}
	return nil
}

func parseKinds(names string) ([]schedule.Kind, error) {
	if names == "" {
		return nil, nil
	}
	var only []schedule.Kind
	for name := range strings.SplitSeq(names, ",") {
		k := schedule.Kind(strings.TrimSpace(name))
		if !slices.Contains(schedule.Kinds(), k) {
			return nil, fmt.Errorf("--faults: %q is none of %v", name, schedule.Kinds())
		}
		only = append(only, k)
	}
	return only, nil
}
