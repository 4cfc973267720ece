// Command sidecar runs beside a game: it knows how many play and whether the game
// may be deleted, speaks the Agones SDK with it, and reports to the operator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/sidecar/internal/options"
	"dormouse.dev/dormouse/sidecar/internal/run"
)

func main() {
	opts, err := options.Parse(os.Args[1:], os.LookupEnv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	// The heap gives way before the container's memory is used up. Outside of a
	// container, or without a limit, there is nothing to set.
	_, _ = memlimit.Set()
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: opts.LogLevel}))
	if err := start(opts, logger); err != nil {
		logger.Error(err, "The sidecar ends")
		os.Exit(1)
	}
}

func start(opts options.Options, logger logr.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	reporter, err := errortracking.New(errortracking.FromEnvironment("sidecar", os.Getenv))
	if err != nil {
		return err
	}
	defer reporter.Close()
	reporter.WatchCrashes()
	return run.Run(ctx, opts, logger, reporter)
}
