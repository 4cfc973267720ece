package endpoints

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestServersOfASelectorlessService(t *testing.T) {
	source := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "lobby-dormouse-x7k2p", Namespace: "games"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("game"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](7000)}},
	}
	add := func(address string, serving, terminating bool) {
		source.Endpoints = append(source.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(serving), Terminating: new(terminating)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "games", Name: address},
		})
	}
	add("10.244.2.1", true, false)
	add("10.244.2.2", false, false) // boots
	add("10.244.2.3", false, false) // was up: a blip
	add("10.244.2.4", false, true)  // was up: goes
	got := serverSlice(fixture.Lobby("", fixture.T0), &source, Pods{}, map[string]bool{"10.244.2.3": true, "10.244.2.4": true}, true)
	if got.Name != "lobby-servers-x7k2p" {
		t.Errorf("name = %s, want lobby-servers-x7k2p", got.Name)
	}
	type endpoint struct {
		Address                     string
		Ready, Serving, Terminating bool
	}
	var have []endpoint
	for _, e := range got.Endpoints {
		have = append(have, endpoint{e.Addresses[0], *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating})
	}
	want := []endpoint{
		{"10.244.2.1", true, true, false},
		{"10.244.2.3", false, true, true},
		{"10.244.2.4", false, true, true},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}
