// Package chaos runs the chaos run for three minutes. It is a package of its own
// so that nothing else is on the cluster meanwhile.
package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/test/chaos"
	"dormouse.dev/dormouse/test/env"
)

const (
	duration = 3 * time.Minute
	// timeout has room for bringing up the cluster, and for the games to fall
	// asleep in the end.
	timeout = 20 * time.Minute
)

func TestNothingIsLostOnASurvivingPath(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	e, err := env.Local(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(rand.Uint32())
	t.Logf("seed %d", seed)
	report, err := chaos.Run(ctx, e, chaos.Options{Seed: seed, Duration: duration, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	report.Print(os.Stderr)
	if err := report.Write(filepath.Join(e.Repo, "bin", "bench", "chaos.json")); err != nil {
		t.Error(err)
	}
	if report.Failed() {
		t.Errorf("to repeat: %s\n%s", report.Command, strings.Join(report.Problems(), "\n"))
	}
}
