package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAResolverIsListedByTheSlicesThatSendNewClientsThere(t *testing.T) {
	slice := func(uid types.UID, ready ...bool) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		for i, r := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				TargetRef: &corev1.ObjectReference{UID: []types.UID{"one", "two"}[i]}, Conditions: discoveryv1.EndpointConditions{Ready: &r},
			})
		}
		return s
	}
	l := newListings()
	for _, step := range []struct {
		slice    *discoveryv1.EndpointSlice
		one, two int
	}{
		{slice("a", true), 1, 0},
		{slice("a", true), 1, 0}, // the same once more
		{slice("b", true, true), 2, 1},
		{slice("a", false, true), 1, 2},
		{slice("b"), 0, 1},
	} {
		l.saw(step.slice)
		one, _ := l.listed("one")
		two, _ := l.listed("two")
		if one != step.one || two != step.two {
			t.Errorf("listed %d and %d times, want %d and %d", one, two, step.one, step.two)
		}
	}
}
