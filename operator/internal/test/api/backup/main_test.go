// Package backup_test checks what makes and carries out Backups against a real API server, with the
// operator's own rights. The tests themselves stand in for kubelets, for the controllers of Servers and
// Jobs, and for that of snapshots.
package backup_test

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
