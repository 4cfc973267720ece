package endpoints

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// A pod is one server, with its address of each family, in whichever order its slices are.
func TestAServerHasAllAddressesOfItsPod(t *testing.T) {
	t.Parallel()
	in := func(family discoveryv1.AddressType, address string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{AddressType: family, Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "lobby-1", UID: "pod-1"}},
		}}
	}
	v4, v6 := in(discoveryv1.AddressTypeIPv4, "10.244.2.9"), in(discoveryv1.AddressTypeIPv6, "fd00:244::9")
	for _, all := range [][]discoveryv1.EndpointSlice{{v4, v6}, {v6, v4}, {v4, v6, v4}} {
		var want []string
		for _, s := range all[:2] {
			want = append(want, s.Endpoints[0].Addresses[0])
		}
		servers, up := ServersOf(all, Pods{})
		if len(servers) != 1 || up != 1 || !slices.Equal(servers[0].Addresses, want) {
			t.Errorf("%d servers are up of %+v, want one at %v", up, servers, want)
		}
	}
	if len(v4.Endpoints[0].Addresses) != 1 {
		t.Errorf("a slice was changed: %v", v4.Endpoints[0].Addresses)
	}
}
