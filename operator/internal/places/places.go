// Package places knows which places the Servers of a Fleet have whose template has storage. A
// place is a number from 0 on. It has a name, which its Server, Pod and disks have too, and at
// most one Server at a time: the API server keeps two Servers of one name from being. So a place's
// world is found again after a sleep, a crash and an update, and two Pods never have its disk.
package places

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// None is the place of a Server that has none.
const None = int32(-1)

// Wanted are the places that a Fleet's Servers are to have, the lowest first, and no more than
// spec.replicas.
func Wanted(spec *v1alpha1.FleetSpec) ([]int32, error) {
	n := int32(1)
	if spec.Replicas != nil {
		n = *spec.Replicas
	}
	if spec.Places == "" || n == 0 {
		return First(n), nil
	}
	set, err := cpuset.Parse(spec.Places)
	if err != nil {
		return nil, fmt.Errorf("spec.places must be numbers and ranges such as 0-2,5: %w", err)
	}
	var all []int32
	for _, place := range set.List() {
		all = append(all, int32(place)) //nolint:gosec // the API server bounds its digits
	}
	return all[:min(len(all), int(n))], nil
}

// First are the first n places.
func First(n int32) []int32 {
	all := make([]int32, 0, n)
	for place := range n {
		all = append(all, place)
	}
	return all
}

// Format writes places as spec.places has them.
func Format(all []int32) string {
	list := make([]int, 0, len(all))
	for _, place := range all {
		list = append(list, int(place))
	}
	return cpuset.New(list...).String()
}

// Name is the name of a place of a Fleet: that of the GameType, or of a Fleet that has none,
// with the number.
func Name(f *v1alpha1.Fleet, place int32) string { return Prefix(f) + "-" + strconv.Itoa(int(place)) }

// Prefix is what the names of a Fleet's places begin with.
func Prefix(f *v1alpha1.Fleet) string {
	if by := metav1.GetControllerOf(f); by != nil && by.Kind == "GameType" {
		return by.Name
	}
	return f.Name
}

// Of is a Server's place; None where it has none.
func Of(s *v1alpha1.Server) int32 {
	place, err := strconv.ParseInt(s.Labels[wellknown.PlaceLabel], 10, 32)
	if err != nil || place < 0 {
		return None
	}
	return int32(place)
}
