// Command demo plays one player against a sleeping game and prints what happens
// when: on the local cluster, or on the one that KUBECONFIG names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"dormouse.dev/dormouse/test/env"
)

// timeout bounds the play itself; bringing the cluster up is not in it.
const timeout = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	e, person, err := open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return show(ctx, e, person)
}

// open brings up the cluster and chooses who plays: on the local cluster a
// player in a network of its own, on another one a pod.
func open(ctx context.Context) (*env.Env, person, error) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		e, err := env.Local(ctx, os.Stderr)
		return e, &neighbour{env: e}, err
	}
	prefix := os.Getenv("IMAGE_PREFIX")
	if prefix == "" {
		return nil, nil, errors.New("KUBECONFIG names a cluster, whose nodes must be able to pull the demo's images: " +
			"set IMAGE_PREFIX to a registry and path that they can pull from, such as registry.example/games, " +
			"after pushing there what `make images IMAGE_PREFIX=...` builds; or unset KUBECONFIG to use the local cluster")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("read KUBECONFIG %s: %w", kubeconfig, err)
	}
	fmt.Fprintf(os.Stderr, "using the cluster at %s with images below %s\n", config.Host, prefix)
	e, err := env.Existing(ctx, config, prefix, os.Stderr)
	return e, &podPlayer{env: e}, err
}
