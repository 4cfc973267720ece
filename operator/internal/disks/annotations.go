package disks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Unfilled reports whether a disk doesn't have what it begins with yet. Without spec.storage[].from
// it begins empty, whatever was asked for before.
func Unfilled(claim *corev1.PersistentVolumeClaim, disk *v1alpha1.StorageSpec) bool {
	from, noted := claim.Annotations[wellknown.FilledAnnotation]
	return noted && from == "" && disk.From != nil
}

// Nothing is what the annotation says of a disk that was to begin with something, and began empty.
const Nothing = "nothing"

// Blank reports whether a disk was to begin with something, which isn't on it, and isn't to any more.
func Blank(claim *corev1.PersistentVolumeClaim, disk *v1alpha1.StorageSpec) bool {
	from, noted := claim.Annotations[wellknown.FilledAnnotation]
	return noted && from == "" && disk.From == nil
}

// MarkUsed notes on a Server's disks that a Pod which may write to them was made at a time, unless
// they say so of a later one. Disks that aren't there are left out.
func MarkUsed(ctx context.Context, live client.Reader, c client.Client, namespace, server string, storage []v1alpha1.StorageSpec, at time.Time) error {
	for i := range storage {
		key := client.ObjectKey{Namespace: namespace, Name: ClaimName(server, storage[i].Name)}
		claim := &corev1.PersistentVolumeClaim{}
		err := live.Get(ctx, key, claim)
		if err == nil {
			noted, parseErr := time.Parse(time.RFC3339, claim.Annotations[wellknown.UsedAtAnnotation])
			if parseErr == nil && !noted.Before(at.Truncate(time.Second)) {
				continue
			}
			err = Annotate(ctx, c, claim, wellknown.UsedAtAnnotation, at.UTC().Format(time.RFC3339))
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("note the use of PersistentVolumeClaim %s: %w", key, err)
		}
	}
	return nil
}

// Annotate sets one annotation of a disk.
func Annotate(ctx context.Context, c client.Client, claim *corev1.PersistentVolumeClaim, name, value string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "annotations": map[string]string{name: value}}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	return c.Patch(ctx, claim, client.RawPatch(types.MergePatchType, body)) //nolint:wrapcheck // the callers say which disk
}
