package route

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// ours is a slice that Dormouse wrote.
func ours(name string) slice {
	s := newSlice(name, "lobby")
	s.Labels[discoveryv1.LabelManagedBy] = wellknown.ManagedBy
	return s
}

// listed lists an address as Dormouse does.
func (s slice) listed(address string, ready bool) slice {
	s = s.endpoint(address, true, !ready)
	s.Endpoints[len(s.Endpoints)-1].Conditions.Ready = &ready
	return s
}

func TestOwnCountsTheSlicesThatSendClientsHere(t *testing.T) {
	unknown := ours("a").listed("10.0.0.7", true)
	unknown.Endpoints[0].Conditions.Ready = nil
	cases := map[string]struct {
		slices []slice
		want   int
	}{
		"none":                                  {},
		"one that lists it as ready":            {slices: []slice{ours("a").listed("10.0.0.1", true).listed("10.0.0.7", true)}, want: 1},
		"one that lists it as ready by default": {slices: []slice{unknown}, want: 1},
		"one for each family":                   {slices: []slice{ours("a").listed("10.0.0.7", true), ours("b").listed("FD00:0::7", true)}, want: 2},
		"one that lists it as terminating":      {slices: []slice{ours("a").listed("10.0.0.7", false)}},
		"one that lists another resolver":       {slices: []slice{ours("a").listed("10.0.0.8", true)}},
		"one that somebody else wrote":          {slices: []slice{newSlice("a", "lobby").listed("10.0.0.7", true)}},
		"one that has changed":                  {slices: []slice{ours("a").listed("10.0.0.7", true), ours("a").listed("10.0.0.7", false)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			own := NewOwn([]netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")})
			for _, s := range tc.slices {
				own.SetSlice(s.EndpointSlice)
			}
			if got := own.Listed(); got != tc.want {
				t.Errorf("%d slices, want %d", got, tc.want)
			}
			for _, s := range tc.slices {
				own.DeleteSlice(s.EndpointSlice)
			}
			if got := own.Listed(); got != 0 {
				t.Errorf("%d slices are left of those that are gone", got)
			}
		})
	}
}

func TestOnlyKubernetesIsBelievedWhereThePodsAre(t *testing.T) {
	s := newSink()
	table := NewTable(s)
	table.SetService(newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolTCP, 10001).ElasticService)
	backends := func() int { return len(s.routes["u1"].Ports[0].Backends) }
	pods := func(managedBy string) slice {
		p := newSlice("s1", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", true, false)
		p.Labels[discoveryv1.LabelManagedBy] = managedBy
		return p
	}
	for _, stranger := range []string{"", "somebody", wellknown.ManagedBy} {
		table.SetSlice(pods(stranger).EndpointSlice)
		if backends() != 0 {
			t.Errorf("a slice of %q is believed", stranger)
		}
	}
	table.SetSlice(pods(wellknown.EndpointSliceController).EndpointSlice)
	if backends() != 1 {
		t.Error("the slice that Kubernetes wrote is not believed")
	}
	public := pods(wellknown.EndpointSliceController)
	delete(public.Labels, wellknown.PrivateServiceLabel)
	for _, taken := range []slice{pods("somebody"), public} {
		table.SetSlice(taken.EndpointSlice)
		if backends() != 0 {
			t.Error("a slice that is somebody else's now is still believed")
		}
		table.SetSlice(pods(wellknown.EndpointSliceController).EndpointSlice)
	}
}
