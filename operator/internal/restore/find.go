package restore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/places"
)

// find finds the disks of a Server, which need not exist if it is a place of a GameType's; nil: there
// are none.
func find(ctx context.Context, cached client.Reader, key types.NamespacedName) (*disks.Set, *v1alpha1.Server, error) {
	s := &v1alpha1.Server{}
	err := cached.Get(ctx, key, s)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("read Server %s: %w", key, err)
	}
	if err != nil {
		set, err := ofPlace(ctx, cached, key)
		return set, nil, err
	}
	if set := disks.OfServer(s); set != nil || len(s.Spec.Storage) == 0 {
		return set, s, nil
	}
	if s.Labels[wellknown.GameTypeLabel] != "" {
		if set, err := ofPlace(ctx, cached, key); set != nil || err != nil {
			return set, s, err
		}
	}
	return ofFleet(s), s, nil
}

// ofPlace are the disks of a place of a GameType's; nil: no GameType has it.
func ofPlace(ctx context.Context, cached client.Reader, key types.NamespacedName) (*disks.Set, error) {
	i := strings.LastIndexByte(key.Name, '-')
	if i < 1 {
		return nil, nil //nolint:nilnil // there is none
	}
	if _, err := strconv.ParseUint(key.Name[i+1:], 10, 31); err != nil {
		return nil, nil //nolint:nilnil,nilerr // it is no place's name
	}
	gt := &v1alpha1.GameType{}
	if err := cached.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name[:i]}, gt); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, fmt.Errorf("read GameType %s/%s: %w", key.Namespace, key.Name[:i], err)
	}
	for _, set := range disks.OfGameType(gt) {
		if set.Name == key.Name {
			return set, nil
		}
	}
	return nil, nil //nolint:nilnil // it hasn't so many
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

// mostUsers bounds how many Pods that have a Server's disks are read.
const mostUsers = 100

// usersOf are the Pods that have a Server's disks and haven't ended, by the API server itself; own
// are those of a Job.
func usersOf(ctx context.Context, live client.Reader, server types.NamespacedName, job string) (others, own []string, err error) {
	var pods corev1.PodList
	err = live.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels{wellknown.DisksLabel: server.Name}, client.Limit(mostUsers))
	if err != nil {
		return nil, nil, fmt.Errorf("list the Pods with the disks of Server %s: %w", server, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch by := metav1.GetControllerOfNoCopy(pod); {
		case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case by != nil && by.Kind == "Job" && by.Name == job:
			own = append(own, pod.Name)
		default:
			others = append(others, pod.Name)
		}
	}
	return others, own, nil
}
