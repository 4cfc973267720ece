package observability

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/monitoring"
)

// promtool reads what the PrometheusRule has below spec, which is what Prometheus
// gets of it.
func TestPromtoolLikesTheAlerts(t *testing.T) {
	if err := env.InstallPrometheus(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	rules, err := monitoring.RulesFile(suite.Cluster.Repo)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join("testdata", "alerts_test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"rules.yml": rules, "alerts_test.yml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yml"}, {"test", "rules", "alerts_test.yml"}} {
		command := exec.CommandContext(t.Context(), env.Promtool, args...)
		command.Dir = dir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s %s: %v\n%s", args[0], args[1], err, output)
		}
	}
}
