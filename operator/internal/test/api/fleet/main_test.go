// Package fleet_test checks the Fleet controller against a real API server, with
// the operator's own rights. What deletes an owner's objects and counts quotas are
// Kubernetes' own controllers; the tests themselves stand in for the controller of
// Servers: they say how a Server is, and take away the guard of one that may go.
package fleet_test

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
