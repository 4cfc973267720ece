// Command up brings up the local cluster with Dormouse in it and says how to use
// it. Running it again brings Dormouse up to date.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/test/env"
)

const usage = `
Dormouse runs. To use it with kubectl:

  export KUBECONFIG=%s
  kubectl apply -f config/samples/direct.yaml
  kubectl get elasticservices --watch

"make down" removes it all.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	e, err := env.Local(ctx, os.Stderr)
	if err != nil {
		return err
	}
	// The samples ask for the test server by a tag that doesn't change.
	servers := slices.DeleteFunc(images.Programs(), func(p images.Program) bool { return p.Dockerfile != "" })
	built, err := images.BuildPrograms(ctx, e.Repo, "", images.DevTag, servers, os.Stderr)
	if err != nil {
		return err
	}
	for _, image := range built {
		if err := e.Cluster.LoadImage(ctx, image.Archive); err != nil {
			return err
		}
	}
	fmt.Printf(usage, e.Cluster.Kubeconfig())
	return nil
}
