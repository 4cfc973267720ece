package restore

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/places"
)

// find finds the disks of a Server, which need not exist if it is a place of a GameType's; nil: there
// are none. It returns the Server, too, if that exists.
func find(ctx context.Context, cached client.Reader, key types.NamespacedName) (*disks.Set, *v1alpha1.Server, error) {
	set, err := disks.Find(ctx, cached, key)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it says what it couldn't read
	}
	s := &v1alpha1.Server{}
	if err := cached.Get(ctx, key, s); err != nil {
		return set, nil, kit.Wrapf(client.IgnoreNotFound(err), "read Server %s", key)
	}
	if set == nil {
		set = ofFleet(s)
	}
	return set, s, nil
}

// ofFleet are the disks of a Server of a Fleet that is no GameType's, while it exists.
func ofFleet(s *v1alpha1.Server) *disks.Set {
	by := metav1.GetControllerOf(s)
	if by == nil || places.Of(s) == places.None {
		return nil
	}
	place := map[string]string{}
	for _, label := range []string{wellknown.PlaceLabel, wellknown.FleetLabel} {
		if value, ok := s.Labels[label]; ok {
			place[label] = value
		}
	}
	return &disks.Set{Namespace: s.Namespace, Name: s.Name, Owner: *by, Spec: &s.Spec, Labels: disks.Labels(s.Name, place)}
}

// only is a set with some of its disks.
func only(set *disks.Set, names []string) *disks.Set {
	some, spec := *set, *set.Spec
	spec.Storage = slices.DeleteFunc(slices.Clone(spec.Storage), func(d v1alpha1.StorageSpec) bool { return !slices.Contains(names, d.Name) })
	some.Spec = &spec
	return &some
}

// existing is a set with those of its disks that are there.
func (r *Reconciler) existing(ctx context.Context, set *disks.Set) (*disks.Set, error) {
	var names []string
	for i := range set.Spec.Storage {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, set.Spec.Storage[i].Name)}
		err := r.Live.Get(ctx, key, claim)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
		}
		if err == nil && claim.DeletionTimestamp.IsZero() {
			names = append(names, set.Spec.Storage[i].Name)
		}
	}
	return only(set, names), nil
}

// withLeft is a set with those of the disks, too, that a Restore writes and that the Server doesn't have any
// more, while they are there: a Server that is deleted may leave them, and they may be half moved.
func (r *Reconciler) withLeft(ctx context.Context, rst *v1alpha1.Restore, set *disks.Set) (*disks.Set, error) {
	if rst.Status.Phase != v1alpha1.CopyRunning || rst.Status.Pod == nil {
		return set, nil // an earlier version has it run
	}
	left := &disks.Set{Namespace: rst.Namespace, Name: rst.Spec.Server, Spec: &v1alpha1.ServerSpec{}}
	left.Spec.Template.Spec = *rst.Status.Pod
	for _, name := range rst.Status.Disks {
		if set == nil || !slices.ContainsFunc(set.Spec.Storage, func(d v1alpha1.StorageSpec) bool { return d.Name == name }) {
			left.Spec.Storage = append(left.Spec.Storage, v1alpha1.StorageSpec{Name: name})
		}
	}
	left, err := r.existing(ctx, left)
	if err != nil || len(left.Spec.Storage) == 0 {
		return set, err
	}
	if set == nil {
		return left, nil
	}
	return with(set, left.Spec.Storage), nil
}

// with is a set with more disks.
func with(set *disks.Set, more []v1alpha1.StorageSpec) *disks.Set {
	all, spec := *set, *set.Spec
	spec.Storage = slices.Concat(spec.Storage, more)
	all.Spec = &spec
	return &all
}
