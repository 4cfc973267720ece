package gameserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// serverUIDAnnotation is on a claim; its value is the UID of the Server that it was created for.
const serverUIDAnnotation = "dormouse.dev/server-uid"

func claimName(s *v1alpha1.Server, disk v1alpha1.StorageSpec) string { return s.Name + "-" + disk.Name }

func buildClaim(s *v1alpha1.Server, disk v1alpha1.StorageSpec) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: claimName(s, disk),
			Labels:      map[string]string{ManagedByLabel: wellknown.ManagedBy, wellknown.ServerLabel: s.Name},
			Annotations: map[string]string{serverUIDAnnotation: string(s.UID)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: disk.StorageClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: disk.Size}},
		},
	}
}

// createClaims creates the disks that don't exist yet. An existing one is used as it is: it may
// have belonged to a former Server of the same name.
func (r *Reconciler) createClaims(ctx context.Context, s *v1alpha1.Server) error {
	for _, disk := range s.Spec.Storage {
		claim := buildClaim(s, disk)
		if err := r.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create PersistentVolumeClaim %s: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return nil
}

// deleteClaims deletes the disks that are to go with the Server, if they were created for it:
// disks that a user created stay, and those of a former Server of the same name.
func (r *Reconciler) deleteClaims(ctx context.Context, s *v1alpha1.Server) error {
	for _, disk := range s.Spec.Storage {
		if disk.OnDelete != v1alpha1.StorageDelete {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: s.Namespace, Name: claimName(s, disk)}
		err := r.Live.Get(ctx, key, claim)
		if err == nil && createdFor(s, claim) {
			err = r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete PersistentVolumeClaim %s: %w", key, err)
		}
	}
	return nil
}

// createdFor reports whether a claim was created for this very Server. Earlier versions noted only
// the Server's name.
func createdFor(s *v1alpha1.Server, claim *corev1.PersistentVolumeClaim) bool {
	if uid, ok := claim.Annotations[serverUIDAnnotation]; ok {
		return uid == string(s.UID)
	}
	return claim.Labels[wellknown.ServerLabel] == s.Name && !claim.CreationTimestamp.Before(&s.CreationTimestamp)
}
