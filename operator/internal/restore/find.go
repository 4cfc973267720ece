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
		return set, nil, wrapf(client.IgnoreNotFound(err), "read Server %s", key)
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

// mostUsers bounds how many Pods that have a Server's disks are read.
const mostUsers = 100

// usersOf are the Pods that have a Server's disks and haven't ended, by the API server itself; own
// are those of a Job. The game's Pod is looked for by its name, too: one that an earlier version made
// doesn't have the label.
func usersOf(ctx context.Context, live client.Reader, server types.NamespacedName, job string) (others, own []string, err error) {
	var pods corev1.PodList
	err = live.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels{wellknown.DisksLabel: server.Name}, client.Limit(mostUsers))
	if err != nil {
		return nil, nil, fmt.Errorf("list the Pods with the disks of Server %s: %w", server, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch by := metav1.GetControllerOfNoCopy(pod); {
		case over(pod):
		case by != nil && by.Kind == "Job" && by.Name == job:
			own = append(own, pod.Name)
		default:
			others = append(others, pod.Name)
		}
	}
	game := &corev1.Pod{}
	err = live.Get(ctx, server, game)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("read Pod %s: %w", server, err)
	}
	if by := metav1.GetControllerOfNoCopy(game); err == nil && by != nil && by.Kind == "Server" && !over(game) && !slices.Contains(others, game.Name) {
		others = append(others, game.Name)
	}
	return others, own, nil
}

// over reports whether a Pod has ended.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
