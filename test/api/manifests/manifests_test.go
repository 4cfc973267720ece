// Package manifests_test checks config/ against kubectl and a real API server.
package manifests_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/api/fixture"
)

func TestMain(m *testing.M) {
	os.Exit(fixture.Main(m, fixture.Options{WithoutDefinitions: true}))
}

// overlays are the directories of config/ that build by themselves.
func overlays(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*", "*/*"} {
		files, err := filepath.Glob(filepath.Join(fixture.Path("config"), pattern, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "kind: Kustomization") {
				found = append(found, filepath.Dir(file))
			}
		}
	}
	if len(found) < 8 {
		t.Fatalf("found %d overlays in config/, want 8 at least: %v", len(found), found)
	}
	return found
}

// withComponent is an overlay of config/default with one component.
func withComponent(t *testing.T, component string) string {
	t.Helper()
	return overlay(t, "resources: [config/default]\ncomponents: [config/components/"+filepath.Base(component)+"]\n")
}

// overlay is a directory with a kustomization.yaml that names config/ as one beside it does.
func overlay(t *testing.T, text string) string {
	t.Helper()
	// Kustomize wants relative paths, and without links on their way.
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(dir, fixture.Path("config"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "config/", config+"/")), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func components(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(fixture.Path("config", "components"), "*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("find components: %v, %v", found, err)
	}
	return found
}

func TestKubectlBuildsWhatWeBuild(t *testing.T) {
	kubectl := os.Getenv("TEST_ASSET_KUBECTL")
	if kubectl == "" {
		t.Fatal(`TEST_ASSET_KUBECTL is not set: run this with "make test-api"`)
	}
	dirs := map[string]string{}
	for _, dir := range overlays(t) {
		dirs[dir] = dir
	}
	for _, component := range components(t) {
		dirs[component] = withComponent(t, component)
	}
	for name, dir := range dirs {
		relative, err := filepath.Rel(fixture.Path("config"), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(relative, func(t *testing.T) {
			ours, err := manifests.Build(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), kubectl, "kustomize", dir)
			output, err := command.Output()
			if err != nil {
				t.Fatalf("run kubectl kustomize: %v", err)
			}
			if diff := cmp.Diff(parse(t, string(output)), ours); diff != "" {
				t.Errorf("objects (-kubectl's +ours):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("parse kubectl's output: %v", err)
		}
		objects = append(objects, object)
	}
	return objects
}

// TestAClusterTakesThemAndLetsThemGo is one test because its steps are one
// installation's life.
func TestAClusterTakesThemAndLetsThemGo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := manifests.Apply(ctx, c, "tester", foreignKinds(), nil); err != nil {
		t.Fatalf("apply the kinds of the Prometheus operator: %v", err)
	}
	for _, component := range components(t) {
		objects := build(t, withComponent(t, component))
		for range 2 {
			if err := manifests.Apply(ctx, c, "tester", objects, nil); err != nil {
				t.Fatalf("apply with %s: %v", filepath.Base(component), err)
			}
		}
	}
	samples := build(t, fixture.Path("config", "samples"))
	for _, sample := range samples {
		sample.SetNamespace("default")
	}
	if err := manifests.Apply(ctx, c, "tester", samples, nil); err != nil {
		t.Fatalf("apply samples: %v", err)
	}

	// No controller runs here that would remove a namespace's content and the
	// namespace; all the rest goes.
	var installed []*unstructured.Unstructured
	for _, object := range build(t, fixture.Path("config", "default")) {
		if object.GetKind() != "Namespace" && object.GetKind() != "Deployment" {
			installed = append(installed, object)
		}
	}
	if err := manifests.Delete(ctx, c, installed, nil, nil); err != nil {
		t.Fatalf("delete: %v", err)
	}
	var left unstructured.UnstructuredList
	left.SetAPIVersion("dormouse.dev/v1alpha1")
	left.SetKind("ElasticServiceList")
	// The API server serves a kind for a moment after its definition is gone.
	for {
		err := c.List(ctx, &left)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return
		}
		if ctx.Err() != nil || len(left.Items) > 0 {
			t.Fatalf("list ElasticServices after the end: %v, %d of them; want no such kind", err, len(left.Items))
		}
	}
}

// foreignKinds are the definitions that components for the Prometheus operator
// need, as far as an API server looks at them.
func foreignKinds() []*unstructured.Unstructured {
	var definitions []*unstructured.Unstructured
	for kind, plural := range map[string]string{"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"} {
		const group = "monitoring.coreos.com"
		definitions = append(definitions, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + group},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced",
				"names": map[string]any{"kind": kind, "plural": plural},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{
						"type": "object", "x-kubernetes-preserve-unknown-fields": true,
					}},
				}},
			},
		}})
	}
	return definitions
}

// TestTheAPIServerKnowsEveryField creates strictly: a field that the API doesn't
// know would be dropped silently otherwise.
func TestTheAPIServerKnowsEveryField(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := manifests.Apply(ctx, c, "tester", foreignKinds(), nil); err != nil {
		t.Fatal(err)
	}
	if err := manifests.Apply(ctx, c, "tester", build(t, fixture.Path("config", "default")), nil); err != nil {
		t.Fatal(err)
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	objects := build(t, fixture.Path("config", "default"))
	for _, component := range components(t) {
		objects = append(objects, build(t, withComponent(t, component))...)
	}
	for _, sample := range build(t, fixture.Path("config", "samples")) {
		sample.SetNamespace("default")
		objects = append(objects, sample)
	}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Namespace" || kind == "CustomResourceDefinition" {
			continue // They exist; dry runs of creation refuse them.
		}
		object.SetName(object.GetName() + "-checked")
		if err := strict.Create(ctx, object, client.DryRunAll); err != nil {
			t.Errorf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func build(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := manifests.Build(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
