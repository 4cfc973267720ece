// Package demo runs the demo as a newcomer does. It is a package of its own so
// that it runs after the others: it deploys Dormouse anew.
package demo

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/internal/dev/images"
	"dormouse.dev/dormouse/test/env"
)

const timeout = 5 * time.Minute

// steps are what the timeline must tell, in this order.
var steps = []string{
	"packet sent", "wake asked", "pod created", "server up", "first reply",
	"handed over to direct", "new version", "upgraded", "idle", "falling asleep", "asleep again",
}

func TestTheDemoTellsTheWholeStory(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	e, err := env.Local(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "registry.example/games"
	built, err := images.BuildPrograms(ctx, e.Repo, prefix, images.DevTag, images.Programs(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range built {
		if err := e.Cluster.LoadImage(ctx, b.Archive); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"on the cluster that KUBECONFIG names", []string{"KUBECONFIG=" + e.Cluster.Kubeconfig(), "IMAGE_PREFIX=" + prefix}},
		{"on the local cluster", []string{"KUBECONFIG="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(ctx, e.Repo, c.env...)
			if err != nil {
				t.Fatalf("demo: %v\n%s", err, out)
			}
			rest := out
			for _, step := range steps {
				_, after, found := strings.Cut(rest, " ms  "+step)
				if !found {
					t.Fatalf("the demo doesn't tell %q in its place:\n%s", step, out)
				}
				rest = after
			}
		})
	}
}

func TestTheDemoSaysWhatIsMissing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	e, err := env.Local(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(ctx, e.Repo, "KUBECONFIG="+e.Cluster.Kubeconfig(), "IMAGE_PREFIX=")
	if err == nil || !strings.Contains(out, "set IMAGE_PREFIX to a registry") {
		t.Errorf("demo without IMAGE_PREFIX: %v, want an error that says to set it:\n%s", err, out)
	}
}

// run runs the demo and gives all that it printed.
func run(ctx context.Context, repo string, environment ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "run", "./hack/demo")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
