package gameserver

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/refusal"
)

func claimName(s *v1alpha1.Server, disk v1alpha1.StorageSpec) string {
	return disks.ClaimName(s.Name, disk.Name)
}

// world is who owns the disks of a place, and what its template says of them now.
type world struct {
	owner   metav1.OwnerReference
	storage []v1alpha1.StorageSpec
}

// takes reports whether a disk goes with its owner. The Server's template and the owner's, which may be a later one,
// both have to say so: a disk that is gone doesn't come back.
func (w *world) takes(disk v1alpha1.StorageSpec) bool {
	now := slices.IndexFunc(w.storage, func(s v1alpha1.StorageSpec) bool { return s.Name == disk.Name })
	return disk.OnDelete == v1alpha1.StorageDelete && (now < 0 || w.storage[now].OnDelete == v1alpha1.StorageDelete)
}

// buildClaim builds the claim for a disk. World is whose the disks of a place are; nil for a
// Server that has none.
func buildClaim(s *v1alpha1.Server, disk v1alpha1.StorageSpec, world *world) *corev1.PersistentVolumeClaim {
	place := map[string]string{}
	for _, label := range []string{wellknown.PlaceLabel, wellknown.FleetLabel, wellknown.GameTypeLabel} {
		if value, ok := s.Labels[label]; ok && places.Of(s) != places.None && (label != wellknown.FleetLabel || s.Labels[wellknown.GameTypeLabel] == "") {
			place[label] = value
		}
	}
	claim := disks.BuildClaim(s.Namespace, s.Name, disks.Labels(s.Name, place), map[string]string{wellknown.ServerUIDAnnotation: string(s.UID)}, &disk)
	if world != nil && world.takes(disk) {
		claim.OwnerReferences = []metav1.OwnerReference{world.owner}
	}
	return claim
}

// keepClaims creates the disks that don't exist yet, and lets the others grow. An existing one
// is used as it is: it may have belonged to a former Server of the same name. It returns one that
// what it begins with isn't on yet; nil: none. Then a game may come on them: one that isn't to begin
// with anything any more says so, and isn't filled if that changes again.
func (r *Reconciler) keepClaims(ctx context.Context, s *v1alpha1.Server) (unfilled *v1alpha1.StorageSpec, err error) {
	world, err := r.worldOf(ctx, s)
	if err != nil {
		return nil, err
	}
	var blank []*corev1.PersistentVolumeClaim
	for _, disk := range s.Spec.Storage {
		// A full quota would refuse to create one that is there.
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: s.Namespace, Name: claimName(s, disk)}
		err := r.Live.Get(ctx, key, claim)
		switch {
		case apierrors.IsNotFound(err):
			claim = buildClaim(s, disk, world)
			err = r.Client.Create(ctx, claim)
		case err == nil && !claim.DeletionTimestamp.IsZero():
			return nil, &busyError{"Waits until disk " + disk.Name + " of an earlier Server of the name is gone.", formerRetry}
		case err == nil:
			if others := disks.Others(claim, s.Name); others != nil {
				return nil, &busyError{others.Error(), refusedRetry}
			}
			err = r.changeClaim(ctx, s, disk, world, claim)
		}
		if err != nil {
			return nil, fmt.Errorf("create PersistentVolumeClaim %s: %w", key, err)
		}
		if disks.Unfilled(claim, &disk) {
			unfilled = &disk
		}
		if disks.Blank(claim, &disk) {
			blank = append(blank, claim)
		}
	}
	if unfilled != nil {
		return unfilled, nil // no game comes on them yet
	}
	for _, claim := range blank {
		if err := disks.Annotate(ctx, r.Client, claim, wellknown.FilledAnnotation, disks.Nothing); err != nil {
			return nil, fmt.Errorf("note that PersistentVolumeClaim %s began with nothing: %w", client.ObjectKeyFromObject(claim), err)
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// changeClaim brings an existing disk to its size, and lets that of a place go with its Fleet or
// GameType if it is to. One that an earlier version made gets its name. A disk that can't grow is reported, and used as it is.
func (r *Reconciler) changeClaim(ctx context.Context, s *v1alpha1.Server, disk v1alpha1.StorageSpec, world *world, claim *corev1.PersistentVolumeClaim) error {
	named := claim.DeepCopy()
	if claim.Labels[wellknown.ServerLabel] == s.Name { // a user's own has none
		metav1.SetMetaDataLabel(&claim.ObjectMeta, wellknown.DiskLabel, disk.Name)
	}
	if world != nil && claim.Labels[wellknown.PlaceLabel] != "" {
		// Also that of an earlier one of the name, with which the disk would still go.
		claim.OwnerReferences = slices.DeleteFunc(claim.OwnerReferences, func(o metav1.OwnerReference) bool {
			group, _ := schema.ParseGroupVersion(o.APIVersion)
			return o.UID == world.owner.UID || group.Group == v1alpha1.GroupVersion.Group && (o.Kind == "GameType" || o.Kind == "Fleet")
		})
		if world.takes(disk) {
			claim.OwnerReferences = append(claim.OwnerReferences, world.owner)
		}
	}
	if err := r.patchClaim(ctx, named, claim); err != nil {
		return err
	}
	have := claim.Spec.Resources.Requests.Storage().DeepCopy()
	if have.Cmp(disk.Size) >= 0 {
		return nil
	}
	before := claim.DeepCopy()
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: disk.Size}
	err := r.patchClaim(ctx, before, claim)
	if refusal.Is(err) {
		kit.Emit(r.Events, s, kit.Warning("DiskNotChanged", "KeepDisk", "Disk %s stays at %s: %s", claim.Name, have.String(), refusal.Words(err)))
		return nil
	}
	return err
}

func (r *Reconciler) patchClaim(ctx context.Context, before, claim *corev1.PersistentVolumeClaim) error {
	if equality.Semantic.DeepEqual(before, claim) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// worldOf is whose the disks of a Server's place are: its Fleet's GameType's, or its Fleet's; nil for a
// Server that has no place, or whose Fleet the cache doesn't show.
func (r *Reconciler) worldOf(ctx context.Context, s *v1alpha1.Server) (*world, error) {
	by := metav1.GetControllerOf(s)
	if places.Of(s) == places.None || by == nil || by.Kind != "Fleet" {
		return nil, nil //nolint:nilnil // there is none
	}
	f := &v1alpha1.Fleet{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: by.Name}, f); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, fmt.Errorf("read Fleet %s/%s: %w", s.Namespace, by.Name, err)
	}
	by = metav1.GetControllerOf(f)
	if by == nil {
		fleet := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: f.Name, UID: f.UID}
		return &world{fleet, f.Spec.Template.Spec.Storage}, nil
	}
	gt := &v1alpha1.GameType{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: by.Name}, gt); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read GameType %s/%s: %w", s.Namespace, by.Name, err)
	}
	return &world{metav1.OwnerReference{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name, UID: by.UID}, gt.Spec.Template.Spec.Storage}, nil
}

// deleteClaims deletes the disks that are to go with the Server, if they were created for it:
// disks that a user created stay, and those of a former Server of the same name. Those of a
// place stay for its next Server.
func (r *Reconciler) deleteClaims(ctx context.Context, s *v1alpha1.Server) error {
	if places.Of(s) != places.None {
		return nil
	}
	for _, disk := range s.Spec.Storage {
		if disk.OnDelete != v1alpha1.StorageDelete {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: s.Namespace, Name: claimName(s, disk)}
		err := r.Live.Get(ctx, key, claim)
		if err == nil && (createdFor(s, claim) || hosts(s, claim)) {
			err = r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete PersistentVolumeClaim %s: %w", key, err)
		}
	}
	return nil
}

// hosts reports whether a claim is the disk of a server of the REST API, whose call says that its disk
// is to go: also one that an earlier server of the number has left.
func hosts(s *v1alpha1.Server, claim *corev1.PersistentVolumeClaim) bool {
	return s.Labels[wellknown.HostedGameLabel] != "" && claim.Labels[wellknown.ServerLabel] == s.Name && claim.Labels[managedByLabel] == wellknown.ManagedBy
}

// createdFor reports whether a claim was created for this very Server. Earlier versions noted only
// the Server's name.
func createdFor(s *v1alpha1.Server, claim *corev1.PersistentVolumeClaim) bool {
	if uid, ok := claim.Annotations[wellknown.ServerUIDAnnotation]; ok {
		return uid == string(s.UID)
	}
	return claim.Labels[wellknown.ServerLabel] == s.Name && !claim.CreationTimestamp.Before(&s.CreationTimestamp)
}
