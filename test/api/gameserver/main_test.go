// Package gameserver_test checks Servers, and what their sidecars and the operator
// tell each other, as a black box: a real API server, two replicas of the
// operator's own binary with their own rights, and reports with tokens that the
// API server made. No game runs: what kubelet would say of one is written by the
// tests.
package gameserver_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/test/api/fixture"
)

// cluster is what all tests share.
var cluster *environment

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard()) // What clients say here is no news.
	dir, err := os.MkdirTemp("", "dormouse-test-gameserver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return fixture.Main(m, fixture.Options{Beside: func(config *rest.Config) (func(bool) error, error) {
		ctx, cancel := context.WithCancel(context.Background())
		binary, err := fixture.BuildOperator(ctx, dir)
		if err == nil {
			cluster, err = startEnvironment(ctx, config, binary)
		}
		if err != nil {
			cancel()
			return nil, fmt.Errorf("start the operator: %w", err)
		}
		return func(failed bool) error {
			defer cancel()
			return cluster.stop(failed)
		}, nil
	}})
}
