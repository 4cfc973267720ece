package restore

import (
	"context"
	"slices"

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
