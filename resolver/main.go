// Command resolver stands in for sleeping services: it holds the clients that connect, has the
// operator wake the service, and relays once a backend is up.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/resolver/internal/options"
	"dormouse.dev/dormouse/resolver/internal/run"
)

func main() {
	opts, err := options.Parse(os.Args[1:], os.LookupEnv, os.Stderr)
	if err != nil {
		os.Exit(program.Misused(os.Stderr, err))
	}
	os.Exit(program.Main(program.Program{
		Name:   "resolver",
		Logs:   program.Logs{Level: opts.LogLevel},
		Drains: true,
		Run: func(ctx context.Context, p program.Process) error {
			log.SetLogger(p.Log)
			config, err := clusterConfig(opts.Kubeconfig)
			if err != nil {
				return err
			}
			return run.Run(ctx, p, config, opts)
		},
	}))
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
