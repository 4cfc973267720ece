// Package patch writes objects to the API server: children by server-side apply of the whole
// desired object under one field owner, status by a patch that is skipped when nothing changed.
package patch

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Apply makes the API server's object equal to desired in every field that desired sets, and
// removes fields that an earlier call of the same owner set and this one doesn't.
func Apply(ctx context.Context, c client.Client, owner string, desired client.Object) error {
	gvk, err := apiutil.GVKForObject(desired, c.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of %s: %w", client.ObjectKeyFromObject(desired), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return fmt.Errorf("convert %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(desired), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(desired), err)
	}
	return nil
}

// Status writes the status of changed if it differs from that of original, and reports whether
// it did. The write fails with a conflict if somebody else changed the object since original
// was read. Both are structs of one kind with a field Status. After a write changed is as the API server has it:
// fields that an older definition of the kind doesn't know are gone.
func Status(ctx context.Context, c client.Client, original, changed client.Object, opts ...client.SubResourcePatchOption) (bool, error) {
	// The patch is found by writing both as JSON, so they have only what it may change. It has the version: the
	// write fails if somebody else wrote since.
	if from, to := statusField(original), statusField(changed); reflect.DeepEqual(from, to) || equality.Semantic.DeepEqual(from, to) {
		return false, nil // mostly found by the first, which needs less memory
	}
	before, after := statusOf(original), statusOf(changed)
	version := original.GetResourceVersion()
	if version == "" {
		return false, fmt.Errorf("write the status of %s: it has no resourceVersion", client.ObjectKeyFromObject(original))
	}
	after.SetResourceVersion(version)
	data, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return false, fmt.Errorf("compare the status of %s: %w", client.ObjectKeyFromObject(changed), err)
	}
	// The answer is read into changed, where what an older definition drops would stay.
	status := reflect.ValueOf(changed).Elem().FieldByName("Status")
	wanted := reflect.New(status.Type()).Elem()
	wanted.Set(status)
	status.SetZero()
	if err := c.Status().Patch(ctx, changed, client.RawPatch(types.MergePatchType, data), opts...); err != nil {
		status.Set(wanted)
		return false, fmt.Errorf("write the status of %s: %w", client.ObjectKeyFromObject(changed), err)
	}
	return true, nil
}

// statusField points at an object's status.
func statusField(o client.Object) any {
	return reflect.ValueOf(o).Elem().FieldByName("Status").Addr().Interface()
}

// statusOf is an object that has nothing but another's status.
func statusOf(o client.Object) client.Object {
	from := reflect.ValueOf(o).Elem()
	reduced := reflect.New(from.Type())
	reduced.Elem().FieldByName("Status").Set(from.FieldByName("Status"))
	return reduced.Interface().(client.Object) //nolint:forcetypeassert // it has o's type
}
