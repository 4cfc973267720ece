// Command testassets builds, where need be, the Kubernetes that the API-level
// tests start, and the service of buckets that tests of backups do, and prints the environment that tells them where it is. The
// Makefile's test-api uses it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/test/env/bucket"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "testassets:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context) error {
	repo, err := binaries.FindRepo()
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	assets, err := binaries.EnvtestAssets(ctx, repo, os.Stderr)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	service, err := bucket.Build(ctx, repo, os.Stderr)
	if err != nil {
		return err //nolint:wrapcheck // it says what it is about
	}
	fmt.Printf("TEST_ASSET_ETCD=%s\nTEST_ASSET_KUBE_APISERVER=%s\nTEST_ASSET_KUBECTL=%s\nTEST_ASSET_KUBE_CONTROLLER_MANAGER=%s\n",
		assets.Etcd, assets.APIServer, assets.Kubectl, assets.ControllerManager)
	fmt.Printf("%s=%s\n", bucket.Asset, service)
	return nil
}
