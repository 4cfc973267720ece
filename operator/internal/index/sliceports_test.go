package index

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/wellknown"
)

func TestWhetherAPortIsInASlice(t *testing.T) {
	slice := func(name, manager string, ports ...int32) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Labels: map[string]string{discoveryv1.LabelManagedBy: manager}}}
		for _, port := range ports {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: &port})
		}
		return s
	}
	s := slice("lobby", wellknown.ManagedBy, 16000, 16003, 20000)
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{}) // all ports
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithObjects(s, slice("arena", wellknown.ManagedBy, 16015), slice("other", "endpointslice-controller.k8s.io", 16007)).
		WithIndex(&discoveryv1.EndpointSlice{}, SlicePort, slicePortKeys).Build()
	for port, want := range map[int32]bool{16000: true, 16003: true, 20000: true, 16015: true, 16001: false, 16007: false, 15999: false, 16016: false, 0: false} {
		if got, err := PortInSlice(t.Context(), reader, port); err != nil || got != want {
			t.Errorf("port %d is in a slice: %t, want %t: %v", port, got, want, err)
		}
	}
}
