package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestShortNames(t *testing.T) {
	for image, want := range map[string]string{
		"dormouse-operator":                                            "dormouse-operator",
		"dormouse-operator:dev":                                        "dormouse-operator",
		"registry.example/games/dormouse-operator:latest":              "dormouse-operator",
		"localhost:5000/dormouse-operator":                             "dormouse-operator",
		"localhost:5000/dormouse-operator:v1@sha256:0123456789abcdef0": "dormouse-operator",
	} {
		if got := shortName(image); got != want {
			t.Errorf("short name of %s = %s, want %s", image, got, want)
		}
	}
}

func TestImagesAreReplacedByName(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "kustomization.yaml", "resources: [game.yaml]\nnamespace: games\n")
	write(t, dir, "game.yaml", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: lobby}
spec:
  template:
    spec:
      initContainers: [{name: copy, image: registry.example/games/copy:1}]
      containers: [{name: game, image: registry.example/games/lobby:1}, {name: other, image: other:2}]
`)
	objects, err := Build(dir, Images{"lobby": "registry.example/lobby:2", "copy": "registry.example/copy:2"})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 1 || objects[0].GetNamespace() != "games" {
		t.Fatalf("objects = %v, want one in games", objects)
	}
	var got []string
	for _, list := range []string{"initContainers", "containers"} {
		containers, _, err := unstructured.NestedSlice(objects[0].Object, "spec", "template", "spec", list)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers {
			got = append(got, c.(map[string]any)["image"].(string))
		}
	}
	if diff := cmp.Diff([]string{"registry.example/copy:2", "registry.example/lobby:2", "other:2"}, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

func TestAnImageThatNothingUsesIsAnError(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "kustomization.yaml", "resources: [a.yaml]\n")
	write(t, dir, "a.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
	_, err := Build(dir, Images{"lobyb": "lobby:2"})
	if err == nil || !strings.Contains(err.Error(), "no container has the image lobyb") {
		t.Errorf("error = %v, want one that names the image", err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
