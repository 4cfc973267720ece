package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/dev/manifests"
)

// remove brings an overlay out of the cluster. The objects of its kinds go, and what Backups keep stays.
func remove(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, progress manifests.Progress) error {
	before := func(users []*unstructured.Unstructured) error { return keepArchives(ctx, c, users) }
	return manifests.Delete(ctx, c, objects, before, progress) //nolint:wrapcheck // it says which objects
}

// keepArchives has the operator leave what Backups keep: a deleted one takes its archive with it.
func keepArchives(ctx context.Context, c client.Client, users []*unstructured.Unstructured) error {
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, wellknown.KeepArchiveAnnotation)
	for _, u := range users {
		if u.GetKind() != "Backup" || u.GroupVersionKind().Group != v1alpha1.GroupVersion.Group || u.GetAnnotations()[wellknown.KeepArchiveAnnotation] == "true" {
			continue
		}
		err := c.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, body))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("keep the archive of Backup %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
	}
	return nil
}
