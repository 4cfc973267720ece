package manifests_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// Who wrote which part of a status is nobody's business, and would be kept in each object and
// found out at each write.
func TestAStatusHasOneOwner(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	install(ctx, t)
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, object := range build(t, fixture.Path("config", "samples")) {
		kind := object.GetKind()
		if object.GroupVersionKind().Group != v1alpha1.GroupVersion.Group || seen[kind] {
			continue
		}
		seen[kind] = true
		object.SetNamespace("default")
		object.SetName("status-" + strings.ToLower(kind))
		if err := c.Create(ctx, object); err != nil {
			t.Fatalf("create a %s: %v", kind, err)
		}
		t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(ctx), object) })
		for i, owner := range []string{"one", "another"} {
			base := object.DeepCopy()
			if err := unstructured.SetNestedField(object.Object, int64(i+1), "status", "observedGeneration"); err != nil {
				t.Fatal(err)
			}
			if err := c.Status().Patch(ctx, object, client.MergeFrom(base), client.FieldOwner(owner)); err != nil {
				t.Fatalf("write the status of a %s: %v", kind, err)
			}
		}
		var owners []string
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource == "status" {
				owners = append(owners, entry.Manager+": "+entry.FieldsV1.GetRawString())
			}
		}
		if len(owners) != 1 || owners[0] != `another: {"f:status":{}}` {
			t.Errorf("the status of a %s is of %q, want of the last writer as a whole", kind, owners)
		}
	}
	for _, kind := range []string{"ElasticService", "Fleet", "GameAutoscaler", "GameType", "Server"} {
		if !seen[kind] {
			t.Errorf("no sample has a %s", kind)
		}
	}
}
