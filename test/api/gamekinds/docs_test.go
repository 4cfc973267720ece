package gamekinds_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/test/api/fixture"
)

// block is a manifest in a document.
var block = regexp.MustCompile("(?s)```yaml\n(apiVersion: dormouse.dev/.*?)```")

// The API server takes each whole manifest of our kinds that the README and the guides show, and
// knows each of its fields.
func TestManifestsInTheDocumentsAreAccepted(t *testing.T) {
	const root = "../../.."
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	found := 0
	check := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range block.FindAllStringSubmatch(string(text), -1) {
			for manifest := range strings.SplitSeq(match[1], "\n---\n") {
				if !strings.Contains(manifest, "apiVersion: dormouse.dev/") {
					continue
				}
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, manifest)
					continue
				}
				o.SetNamespace(metav1.NamespaceDefault)
				if err := strict.Create(t.Context(), o, client.DryRunAll); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, manifest)
				}
				found++
			}
		}
	}
	check(filepath.Join(root, "README.md"))
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			check(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("the documents have %d manifests; are they looked for rightly?", found)
	}
}
