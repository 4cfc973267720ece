// Package elasticservice_test checks the ElasticService API and the operator as a
// black box: a real API server, the operator's own binary with its own rights,
// and stand-ins for what no pod runs here: resolver pods that answer the operator
// as the resolver does, and game servers that exist as EndpointSlices.
package elasticservice_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/test/api/fixture"
	"dormouse.dev/dormouse/test/sandbox"
)

// operatorBinary is in the environment of the sandboxed process.
const operatorBinary = "DORMOUSE_TEST_OPERATOR"

// atOnce is how many tests run at once unless a flag says otherwise: they wait
// for the operator's clocks nearly all the time, not for a processor.
const atOnce = "32"

// cluster is what all tests share.
var cluster *environment

func TestMain(m *testing.M) {
	if sandbox.In() {
		os.Exit(runTests(m))
	}
	code, err := joinSandbox()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// joinSandbox builds the operator, which may want the network, and goes on
// where there is none.
func joinSandbox() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "dormouse-test-api-")
	if err != nil {
		return 1, fmt.Errorf("make a directory for the operator: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := fixture.BuildOperator(ctx, dir)
	if err != nil {
		return 1, err
	}
	return sandbox.Run(ctx, append([]string{"-test.parallel=" + atOnce}, os.Args[1:]...), operatorBinary+"="+binary)
}

func runTests(m *testing.M) int {
	if err := sandbox.SetUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log.SetLogger(logr.Discard()) // What clients say here is no news.
	return fixture.Main(m, fixture.Options{Beside: func(config *rest.Config) (func(bool) error, error) {
		ctx, cancel := context.WithCancel(context.Background())
		started, err := startEnvironment(ctx, config, os.Getenv(operatorBinary))
		if err != nil {
			cancel()
			return nil, err
		}
		cluster = started
		return func(failed bool) error {
			defer cancel()
			return cluster.stop(failed)
		}, nil
	}})
}
