// Command operator runs Dormouse's controllers and its wake endpoint.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap/zapcore"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/setup"
)

func main() {
	if err := run(); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run() error {
	o, err := options.Parse(os.Args[1:])
	if err != nil {
		return err
	}
	// The heap gives way before the container's memory is used up. Outside of a
	// container, or without a limit, there is nothing to set.
	_, _ = memlimit.Set()
	level := zapcore.InfoLevel
	if o.Verbose {
		level = zapcore.DebugLevel
	}
	ctrl.SetLogger(zap.New(zap.Level(level)))
	reporter, err := errortracking.New(errortracking.FromEnvironment("operator", os.Getenv))
	if err != nil {
		return err
	}
	defer reporter.Close()
	defer utilruntime.HandleCrash()
	reporter.WatchCrashes()
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	return setup.Run(ctrl.SetupSignalHandler(), config, o, reporter)
}
