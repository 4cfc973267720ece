package copyjob

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SnapshotKind is the kind of snapshots, which a cluster may not have.
var SnapshotKind = schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshot"}

// SnapshotName is the name of the VolumeSnapshot that a Backup has of a disk.
func SnapshotName(backup, disk string) string { return backup + "-" + disk }

// ReadSnapshot reads a VolumeSnapshot, by the API server itself; nil: it isn't there. Where the cluster
// doesn't have the kind the error is a meta.NoMatchError.
func ReadSnapshot(ctx context.Context, live client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(SnapshotKind)
	err := live.Get(ctx, key, u)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it isn't there
	}
	if err != nil {
		return nil, fmt.Errorf("read VolumeSnapshot %s: %w", key, err)
	}
	return u, nil
}

// ReadTemplate reads the PodTemplate whose first container copies; nil: it isn't there, or has none.
func ReadTemplate(ctx context.Context, cached client.Reader, key types.NamespacedName) (*corev1.PodTemplate, error) {
	t := &corev1.PodTemplate{}
	err := cached.Get(ctx, key, t)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read PodTemplate %s: %w", key, err)
	}
	if err != nil || len(t.Template.Spec.Containers) == 0 {
		return nil, nil //nolint:nilnil,nilerr // there is none
	}
	return t, nil
}
