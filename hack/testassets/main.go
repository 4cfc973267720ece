// Command testassets builds, where need be, the Kubernetes that the API-level
// tests start, and prints the environment that tells them where it is. The
// Makefile's test-api uses it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	assets, err := binaries.EnvtestAssets(ctx, "", os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testassets:", err)
		os.Exit(1)
	}
	fmt.Printf("TEST_ASSET_ETCD=%s\nTEST_ASSET_KUBE_APISERVER=%s\nTEST_ASSET_KUBECTL=%s\nTEST_ASSET_KUBE_CONTROLLER_MANAGER=%s\n",
		assets.Etcd, assets.APIServer, assets.Kubectl, assets.ControllerManager)
}
