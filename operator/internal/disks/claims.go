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

// Keep makes the disks of a Server that aren't there yet: it may never have run.
func Keep(ctx context.Context, live client.Reader, c client.Client, set *Set) error {
	for i := range set.Spec.Storage {
		disk := &set.Spec.Storage[i]
		// A full quota would refuse to create one that is there.
		key := client.ObjectKey{Namespace: set.Namespace, Name: ClaimName(set.Name, disk.Name)}
		err := live.Get(ctx, key, &corev1.PersistentVolumeClaim{})
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
