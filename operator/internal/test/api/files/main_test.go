// Package files_test checks what serves the files of Servers against a real API server, with the
// operator's own rights. The tests themselves stand in for kubelet, the scheduler, and the
// controllers of Deployments and of ElasticServices.
package files_test

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
