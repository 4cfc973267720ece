// Package gameautoscaler_test checks the GameAutoscaler controller against a real API server, with
// the operator's own rights. The tests themselves stand in for the controllers of targets and of
// Servers, and for webhooks.
package gameautoscaler_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/test/api/fixture"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // What clients say here is no news.
	os.Exit(fixture.Main(m, fixture.Options{Beside: fixture.StartControllers}))
}
