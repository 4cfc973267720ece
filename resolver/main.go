// Command resolver stands in for sleeping servers: it holds the clients that
// connect, has the operator wake the server, and relays once it is up.
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
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/resolver/internal/options"
	"dormouse.dev/dormouse/resolver/internal/run"
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
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: opts.LogLevel})
	logger := logr.FromSlogHandler(handler)
	log.SetLogger(logger)
	klog.SetSlogLogger(slog.New(handler))

	if err := start(opts, logger); err != nil {
		logger.Error(err, "The resolver ends")
		os.Exit(1)
	}
}

func start(opts options.Options, logger logr.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	reporter, err := errortracking.New(errortracking.FromEnvironment("resolver", os.Getenv))
	if err != nil {
		return err
	}
	defer reporter.Close()
	defer utilruntime.HandleCrash()
	reporter.WatchCrashes()
	config, err := clusterConfig(opts.Kubeconfig)
	if err != nil {
		return err
	}
	return run.Run(ctx, config, opts, logger, reporter)
}

func clusterConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (use --kubeconfig outside of a Pod): %w", err)
	}
	config.UserAgent = "dormouse-resolver"
	return config, nil
}
