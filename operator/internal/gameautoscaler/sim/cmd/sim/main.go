// Command sim replays weeks of players against the policies of a GameAutoscaler, and prints what
// each costs and who had to wait. It writes the figures to bin/sim/sim.json and a plot of a week
// to bin/sim/week.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"dormouse.dev/dormouse/operator/internal/gameautoscaler/sim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	list := flags.String("seeds", "101,202,303", "what chance goes by in each trace, comma separated")
	output := flags.String("output", "bin/sim", "directory of what is written")
	plot := flags.String("plot", "", "where the plot is written, if not there")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	var seeds []uint64
	for text := range strings.SplitSeq(*list, ",") {
		seed, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil || seed == 0 {
			return fmt.Errorf("-seeds needs numbers from 1 on, such as 101,202,303; %q is none", text)
		}
		seeds = append(seeds, seed)
	}
	if *plot == "" {
		*plot = filepath.Join(*output, "week.svg")
	}
	report, drawing, err := sim.Compare(ctx, seeds, os.Stderr)
	if err != nil {
		return err
	}
	report.Print(os.Stdout)
	figures := filepath.Join(*output, "sim.json")
	if err := errors.Join(report.Write(figures), drawing.Write(*plot)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "wrote %s and %s\n", figures, *plot)
	return nil
}
