// Package monitoring reads the dashboards and alert rules out of config/ as those
// who install them get them, for tests of what is in them.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/internal/dev/manifests"
)

// Dashboard is one of Grafana's, as far as tests look at it.
type Dashboard struct {
	// File is its file's name.
	File string `json:"-"`

	UID         string `json:"uid"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Templating  struct {
		List []Variable `json:"list"`
	} `json:"templating"`
	Panels []Panel `json:"panels"`
}

// Variable is one that its reader chooses.
type Variable struct {
	Name  string `json:"name"`
	Query any    `json:"query"`
}

// Panel is one of a dashboard's.
type Panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
	Position struct{ X, Y, W, H int } `json:"gridPos"`
}

// Rule is an alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Dashboards are those of the component, as its ConfigMap has them.
func Dashboards(repo string) ([]Dashboard, error) {
	objects, err := build(repo, "grafana-dashboards", "ConfigMap")
	if err != nil {
		return nil, err
	}
	var found []Dashboard
	for _, o := range objects {
		if o.GetLabels()["grafana_dashboard"] != "1" {
			continue
		}
		files, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			return nil, fmt.Errorf("read ConfigMap %s: %w", o.GetName(), err)
		}
		for name, text := range files {
			d := Dashboard{File: name}
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				return nil, fmt.Errorf("read dashboard %s: %w", name, err)
			}
			found = append(found, d)
		}
	}
	return found, nil
}

// RulesFile is the rules as Prometheus itself, and promtool, read them.
func RulesFile(repo string) ([]byte, error) {
	objects, err := build(repo, "prometheus-rule", "PrometheusRule")
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("the component has %d PrometheusRules, want 1", len(objects))
	}
	text, err := yaml.Marshal(objects[0].Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("write the rules: %w", err)
	}
	return text, nil
}

// Rules are the alerts.
func Rules(repo string) ([]Rule, error) {
	text, err := RulesFile(repo)
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	var rules []Rule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules, nil
}

// ScrapeConfig is the one that the guide shows.
func ScrapeConfig(repo string) (string, error) {
	text, err := os.ReadFile(filepath.Join(repo, "docs", "guide", "observability.md"))
	if err != nil {
		return "", fmt.Errorf("read the guide: %w", err)
	}
	_, after, ok := strings.Cut(string(text), "```yaml\nscrape_configs:\n")
	block, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		return "", fmt.Errorf("the guide shows no scrape_configs")
	}
	return "scrape_configs:\n" + block, nil
}

// build gives a component's objects of a kind. A component builds only as part of
// something.
func build(repo, component, kind string) ([]*unstructured.Unstructured, error) {
	if err := os.MkdirAll(filepath.Join(repo, "bin"), 0o755); err != nil {
		return nil, fmt.Errorf("make a directory for the overlay: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Join(repo, "bin"), "component-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the overlay: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	text := "components: [../../config/components/" + component + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the overlay: %w", err)
	}
	objects, err := manifests.Build(dir, nil)
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found, nil
}
