// Package gametype_test checks the GameType controller against a real API server,
// with the operator's own rights. What deletes an owner's objects is Kubernetes' own
// controller. The tests themselves stand in for the controllers of Fleets, except
// where they say that they have the real one, and of Servers.
package gametype_test

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
