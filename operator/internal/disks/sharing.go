package disks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sharing is who else may have a disk that a Pod has.
type Sharing int

const (
	// SharedByAll is a disk that Pods of all nodes may have.
	SharedByAll Sharing = iota
	// SharedByNode is one that those of one node may have.
	SharedByNode
	// SharedByNobody is one that a single Pod may have.
	SharedByNobody
)

// SharingOf is how a claim with these access modes is shared.
func SharingOf(modes []corev1.PersistentVolumeAccessMode) Sharing {
	shared := SharedByNode
	for _, m := range modes {
		switch m {
		case corev1.ReadWriteMany:
			return SharedByAll
		case corev1.ReadWriteOncePod:
			shared = SharedByNobody
		default:
		}
	}
	return shared
}

// ReadSharing reads, by the API server itself, how that one of a Server's disks is shared that is shared
// least. One that isn't there yet is made for one node.
func ReadSharing(ctx context.Context, live client.Reader, set *Set) (Sharing, error) {
	least := SharedByAll
	for i := range set.Spec.Storage {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: ClaimName(set.Name, set.Spec.Storage[i].Name)}
		err := live.Get(ctx, key, claim)
		if err != nil && !apierrors.IsNotFound(err) {
			return least, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
		}
		least = max(least, SharingOf(claim.Spec.AccessModes))
	}
	return least, nil
}

// Placed is a set that says whether a Pod with its disks may be on any node, as their claims do.
func Placed(ctx context.Context, live client.Reader, set *Set) (*Set, error) {
	shared, err := ReadSharing(ctx, live, set)
	placed := *set
	placed.Anywhere = shared == SharedByAll
	return &placed, err
}
