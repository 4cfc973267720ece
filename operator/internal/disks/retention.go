package disks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Retention is what a controller remembers of which disks of a Fleet's or GameType's places outlive it. It can be
// lost.
type Retention struct {
	// names are those of the disks that do, as the places' template had them in the last pass; nil: there was none.
	names []string
}

// Keep lets disks that were to go with their owner outlive it, where the template says so now. The controller of
// the Servers does so as well, but a place without a Server, or with one that still has the earlier template, has
// nobody else. of finds the disks of the owner's places; observed is whether the owner's status is of its
// generation, so that an earlier leader has done it. The API server is asked only after a change.
func (m *Retention) Keep(ctx context.Context, live client.Reader, c client.Client, owner client.Object, of client.MatchingLabels, storage []v1alpha1.StorageSpec, observed bool) error {
	names := []string{}
	for i := range storage {
		if storage[i].OnDelete != v1alpha1.StorageDelete {
			names = append(names, storage[i].Name)
		}
	}
	if m.names == nil && !observed || m.names != nil && !slices.Equal(m.names, names) {
		if err := keepAll(ctx, live, c, owner, of, names); err != nil {
			return fmt.Errorf("keep the disks of %s: %w", client.ObjectKeyFromObject(owner), err)
		}
	}
	m.names = names
	return nil
}

// keepAll takes an owner off the disks of some names.
func keepAll(ctx context.Context, live client.Reader, c client.Client, owner client.Object, of client.MatchingLabels, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := live.List(ctx, &claims, client.InNamespace(owner.GetNamespace()), of); err != nil {
		return err //nolint:wrapcheck // Keep does
	}
	own := func(o metav1.OwnerReference) bool { return o.UID == owner.GetUID() }
	for i := range claims.Items {
		claim := &claims.Items[i]
		// Earlier versions gave disks no label of their own.
		disk := cmp.Or(claim.Labels[wellknown.DiskLabel], strings.TrimPrefix(claim.Name, ClaimName(claim.Labels[wellknown.ServerLabel], "")))
		if !slices.ContainsFunc(claim.OwnerReferences, own) || !slices.Contains(names, disk) {
			continue
		}
		before := claim.DeepCopy()
		claim.OwnerReferences = slices.DeleteFunc(claim.OwnerReferences, own)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, claim, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the owner off PersistentVolumeClaim %s: %w", claim.Name, err)
		}
	}
	return nil
}
