// Package restore_test checks Restores, the filling of new disks and that games wait for both against
// a real API server, with the operator's own rights. What deletes an owner's objects are Kubernetes'
// own controllers; the tests themselves stand in for kubelet and the controller of Jobs.
package restore_test

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
