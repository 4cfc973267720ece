package disks

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// managedByLabel says who made a claim.
const managedByLabel = "app.kubernetes.io/managed-by"

// ClaimName is the name of the PersistentVolumeClaim of a Server's disk.
func ClaimName(server, disk string) string { return server + "-" + disk }

// Labels are the labels of a Server's disks, with those of its place.
func Labels(server string, place map[string]string) map[string]string {
	all := map[string]string{managedByLabel: wellknown.ManagedBy, wellknown.ServerLabel: server}
	maps.Copy(all, place)
	return all
}

// OthersError says that a disk of a Server has the name of another Server's: those of the disk world-nether of a
// Server mc and of the disk nether of a Server mc-world are one.
type OthersError struct{ sentence string }

func (e *OthersError) Error() string { return e.sentence }

// IsOthers reports whether a claim that Dormouse made is another Server's, whose world it may have. A user's own
// is nobody's.
func IsOthers(claim *corev1.PersistentVolumeClaim, server string) bool {
	other := claim.Labels[wellknown.ServerLabel]
	return other != "" && other != server && claim.Labels[managedByLabel] == wellknown.ManagedBy
}

// Others is an OthersError where a claim is another Server's; nil where it isn't.
func Others(claim *corev1.PersistentVolumeClaim, server string) error {
	if !IsOthers(claim, server) {
		return nil
	}
	return &OthersError{fmt.Sprintf(
		"PersistentVolumeClaim %s is a disk of Server %s: give this Server's disk another name in spec.storage. If it is to have what is on the claim, and that Server isn't, take the claim's label %s off.",
		claim.Name, claim.Labels[wellknown.ServerLabel], wellknown.ServerLabel)}
}

// BuildClaim builds the claim for a disk of a Server, with the labels and annotations of its disks.
func BuildClaim(namespace, server string, labels, annotations map[string]string, disk *v1alpha1.StorageSpec) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ClaimName(server, disk.Name), Labels: maps.Clone(labels), Annotations: maps.Clone(annotations),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: disk.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: disk.Size}},
		},
	}
	metav1.SetMetaDataLabel(&claim.ObjectMeta, wellknown.DiskLabel, disk.Name)
	if disk.From != nil {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, wellknown.FilledAnnotation, "")
	}
	return claim
}

// Keep makes the disks of a Server that aren't there yet: it may never have run. It fails with an OthersError
// where one is another Server's.
func Keep(ctx context.Context, live client.Reader, c client.Client, set *Set) error {
	for i := range set.Spec.Storage {
		disk := &set.Spec.Storage[i]
		// A full quota would refuse to create one that is there.
		key := client.ObjectKey{Namespace: set.Namespace, Name: ClaimName(set.Name, disk.Name)}
		have := &corev1.PersistentVolumeClaim{}
		err := live.Get(ctx, key, have)
		if err == nil {
			err = Others(have, set.Name)
		}
		if apierrors.IsNotFound(err) {
			claim := BuildClaim(set.Namespace, set.Name, set.Labels, set.Annotations, disk)
			if set.Owner.Kind == "GameType" && disk.OnDelete == v1alpha1.StorageDelete {
				// It goes with its GameType, as one that its Server has made does.
				o := set.Owner
				claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID}}
			}
			err = c.Create(ctx, claim)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create PersistentVolumeClaim %s: %w", key, err)
		}
	}
	return nil
}
