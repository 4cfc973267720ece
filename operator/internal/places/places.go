// Package places knows which places the Servers of a Fleet have whose template has storage. A
// place is a number from 0 on. It has a name, which its Server, Pod and disks have too, and at
// most one Server at a time: the API server keeps two Servers of one name from being. So a place's
// world is found again after a sleep, a crash and an update, and two Pods never have its disk.
package places

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// None is the place of a Server that has none.
const None = int32(-1)

// Most is how many places spec.places may name: as many as a Fleet may have Servers. A place that
// is named twice counts twice.
const Most = 10_000

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
	all, err := parse(spec.Places)
	if err != nil {
		return nil, fmt.Errorf("spec.places must be numbers and ranges such as 0-2,5: %w", err)
	}
	return all[:min(len(all), int(n))], nil
}

// parse reads spec.places: each place once, the lowest first. A few characters can name very many
// places, so that they are counted before any is added.
func parse(text string) ([]int32, error) {
	var all []int32
	for item := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(item, "-")
		if !ranged {
			last = first
		}
		from, err := number(first)
		if err != nil {
			return nil, err
		}
		to, err := number(last)
		if err != nil {
			return nil, err
		}
		switch {
		case from > to:
			return nil, fmt.Errorf("%q ends before it begins", item)
		case int(to-from) >= Most-len(all):
			return nil, fmt.Errorf("it has more than %d places", Most)
		}
		for place := from; place <= to; place++ {
			all = append(all, place)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// number reads a place. The API server lets it have five digits.
func number(word string) (int32, error) {
	n, err := strconv.ParseUint(word, 10, 20)
	if err != nil {
		return 0, fmt.Errorf("%.20q is no number of a place", word)
	}
	return int32(n), nil
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
