package manifests_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// Whoever applies a sample again, every three minutes say, changes nothing: it has the
// defaults of what is in lists, which kubectl can't tell from somebody's change.
func TestASampleThatIsAppliedAgainChangesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	install(ctx, t)
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range build(t, fixture.Path("config", "samples")) {
		if sample.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
			continue
		}
		sample.SetNamespace("default")
		said, err := json.Marshal(sample)
		if err != nil {
			t.Fatal(err)
		}
		kept := sample.DeepCopy()
		kept.SetName(sample.GetName() + "-applied")
		if err := client.WithFieldValidation(c, metav1.FieldValidationStrict).Create(ctx, kept, client.DryRunAll); err != nil {
			t.Errorf("create %s %s: %v", sample.GetKind(), sample.GetName(), err)
			continue
		}
		kept.SetName(sample.GetName())
		current, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		// What kubectl apply sends where it knows a kind only by its definition.
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(said, said, current)
		if err != nil {
			t.Fatal(err)
		}
		if string(patch) != "{}" {
			t.Errorf("%s %s is changed when it is applied again: %s", sample.GetKind(), sample.GetName(), patch)
		}
	}
}

// What people have made from the samples of earlier versions, which are
// testdata/samples/<commit>.yaml, is accepted, to the last field, and changes nothing when it is
// applied again.
func TestTheSamplesOfEarlierVersionsAreAccepted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	install(ctx, t)
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	files, err := filepath.Glob(filepath.Join("testdata", "samples", "*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files of samples (%v)", len(files), err)
	}
	for _, file := range files {
		content, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = content.Close() }()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "samples-"}}
		if err := c.Create(ctx, namespace); err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for decoder := yaml.NewYAMLOrJSONDecoder(content, 4<<10); ; {
			sample := &unstructured.Unstructured{}
			if err := decoder.Decode(sample); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if sample.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
				continue
			}
			kinds[sample.GetKind()]++
			sample.SetNamespace(namespace.Name)
			made := sample.DeepCopy()
			if err := strict.Create(ctx, made); err != nil {
				t.Errorf("%s: create %s %s: %v", file, sample.GetKind(), sample.GetName(), err)
				continue
			}
			again := sample.DeepCopy()
			if err := strict.Patch(ctx, again, client.Merge); err != nil || again.GetResourceVersion() != made.GetResourceVersion() {
				t.Errorf("%s: %s %s is changed when it is applied again, or refused: %v", file, sample.GetKind(), sample.GetName(), err)
			}
		}
		for _, kind := range []string{"Server", "Fleet", "GameType", "ElasticService"} {
			if kinds[kind] == 0 {
				t.Errorf("%s has no %s", file, kind)
			}
		}
	}
}
