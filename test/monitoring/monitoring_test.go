package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const repo = "../.."

// others are metrics of the libraries that the programs use.
var others = regexp.MustCompile(`^(controller_runtime_|leader_election_|process_|go_)`)

var (
	metricName = regexp.MustCompile(`\b(?:dormouse|controller_runtime|leader_election|process|go)_[a-z_]+`)
	suffix     = regexp.MustCompile(`_(bucket|sum|count)$`)
	text       = regexp.MustCompile(`"[^"]*"`)
)

// wantMeasured fails the test where an expression has a metric that nothing measures.
func wantMeasured(t *testing.T, where, expr string) {
	t.Helper()
	documented := read(t, "docs/metrics.md")
	names := metricName.FindAllString(text.ReplaceAllString(expr, `""`), -1)
	if len(names) == 0 {
		t.Errorf("%s: %q asks for no metric of ours", where, expr)
	}
	for _, name := range names {
		if !others.MatchString(name) && !strings.Contains(documented, "`"+suffix.ReplaceAllString(name, "")+"`") {
			t.Errorf("%s: nothing measures %s", where, name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestDashboardsAskForWhatIsMeasured(t *testing.T) {
	dashboards, err := Dashboards(repo)
	if err != nil {
		t.Fatal(err)
	}
	if len(dashboards) != 2 {
		t.Fatalf("there are %d dashboards, want 2", len(dashboards))
	}
	uids := map[string]bool{}
	for _, d := range dashboards {
		if d.UID == "" || d.Title == "" || d.Description == "" || uids[d.UID] {
			t.Errorf("%s needs a title, a description, and a uid of its own", d.File)
		}
		uids[d.UID] = true
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if p.Title == "" || p.ID == 0 || ids[p.ID] {
				t.Errorf("%s: panel %d %q needs a title, and an id of its own", d.File, p.ID, p.Title)
			}
			ids[p.ID] = true
			if p.Position.X+p.Position.W > 24 {
				t.Errorf("%s: panel %q is beyond the right edge", d.File, p.Title)
			}
			if p.Type == "row" {
				continue
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s: panel %q asks for nothing", d.File, p.Title)
			}
			for _, target := range p.Targets {
				wantMeasured(t, d.File+", "+p.Title, target.Expr)
			}
			for _, q := range d.Panels {
				if p.ID < q.ID && overlap(p, q) {
					t.Errorf("%s: panels %q and %q overlap", d.File, p.Title, q.Title)
				}
			}
		}
	}
}

func overlap(p, q Panel) bool {
	a, b := p.Position, q.Position
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func TestAlertsAskForWhatIsMeasuredAndSayWhatToDo(t *testing.T) {
	rules, err := Rules(repo)
	if err != nil {
		t.Fatal(err)
	}
	guide := read(t, "docs/guide/observability.md")
	names := map[string]bool{}
	for _, r := range rules {
		if names[r.Alert] {
			t.Errorf("there are two alerts %s", r.Alert)
		}
		names[r.Alert] = true
		wantMeasured(t, r.Alert, r.Expr)
		if severity := r.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s has severity %q", r.Alert, severity)
		}
		for _, annotation := range []string{"summary", "description"} {
			if !strings.HasSuffix(r.Annotations[annotation], ".") {
				t.Errorf("%s: its %s is no sentence: %q", r.Alert, annotation, r.Annotations[annotation])
			}
		}
		if want := "docs/guide/observability.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: its runbook is %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if !strings.Contains(guide, "\n### "+r.Alert+"\n") {
			t.Errorf("the guide has nothing about %s", r.Alert)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (Dormouse\w+)$`).FindAllStringSubmatch(guide, -1) {
		if !names[heading[1]] {
			t.Errorf("the guide has %s, which is no alert", heading[1])
		}
	}
}
