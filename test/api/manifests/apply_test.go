package manifests_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
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
