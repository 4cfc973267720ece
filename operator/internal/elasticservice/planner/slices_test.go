package planner_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func TestResolverSlices(t *testing.T) {
	es := fixture.Lobby("", fixture.T0)
	o := seen.Of(0)
	o.Service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	o.Resolvers = []endpoints.Resolver{seen.Standing("resolver-2"), seen.Standing("resolver-1")}
	o.Resolvers[0].Addresses = []string{"10.244.1.2", "fd00::2"}
	o.Resolvers[1].Addresses = []string{"10.244.1.1", "fd00::1"}
	o.Resolvers[1].Node = "node-1"
	slices := seen.SlicesOf(es, o, planner.Plan{Roles: map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating, "resolver-2": endpoints.RoleReady}})
	if len(slices) != 2 {
		t.Fatalf("%d slices, want one for each address family", len(slices))
	}
	v4 := slices[0]
	if v4.AddressType != discoveryv1.AddressTypeIPv4 || slices[1].AddressType != discoveryv1.AddressTypeIPv6 {
		t.Errorf("families %s and %s, want IPv4 and IPv6", v4.AddressType, slices[1].AddressType)
	}
	wantLabels := map[string]string{
		"kubernetes.io/service-name": "lobby", "endpointslice.kubernetes.io/managed-by": "dormouse.dev",
		wellknown.PrivateServiceLabel: "lobby", "app.kubernetes.io/managed-by": "dormouse",
	}
	if diff := cmp.Diff(wantLabels, v4.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantPorts := []discoveryv1.EndpointPort{{Name: new("game"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](10001)}}
	if diff := cmp.Diff(wantPorts, v4.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	want := []discoveryv1.Endpoint{{
		Addresses:  []string{"10.244.1.1"},
		Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
		NodeName:   new("node-1"),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "dormouse-system", Name: "resolver-1", UID: "resolver-1"},
	}, {
		Addresses:  []string{"10.244.1.2"},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "dormouse-system", Name: "resolver-2", UID: "resolver-2"},
	}}
	if diff := cmp.Diff(want, v4.Endpoints); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

func TestServersGetNewClientsOnlyWhileAwakeAndHandedTo(t *testing.T) {
	o := seen.Of(1, seen.UpServer)
	o.Service.Spec.Selector = nil
	o.Sources = []discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-x7k2p"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.2.9"}, Conditions: discoveryv1.EndpointConditions{Serving: new(true)}}},
	}}
	serversIn := func(phase v1alpha1.Phase, es *v1alpha1.ElasticService, o planner.Observed) []*discoveryv1.EndpointSlice {
		p := planner.Plan{Phase: phase}
		p.PlanRoles(fixture.T0, es, o)
		p.Roles = nil
		return seen.SlicesOf(es, o, p)
	}
	observed := o
	observed.Slices = []discoveryv1.EndpointSlice{*serversIn(v1alpha1.PhaseAwake, fixture.Lobby("", fixture.T0), o)[0]}
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, v1alpha1.PhaseFallingAsleep} {
		slices := serversIn(phase, fixture.Lobby("", fixture.T0), observed)
		if len(slices) != 1 {
			t.Fatalf("%s: %d slices, want the servers'", phase, len(slices))
		}
		if got, want := *slices[0].Endpoints[0].Conditions.Ready, phase == v1alpha1.PhaseAwake; got != want {
			t.Errorf("%s: a server that is up is ready = %v, want %v", phase, got, want)
		}
	}
	if s := serversIn(v1alpha1.PhaseAwake, fixture.Never(fixture.Lobby("", fixture.T0)), o); len(s) != 0 {
		t.Errorf("handoff Never: %d slices of servers that never had clients, want none", len(s))
	}
	changed := serversIn(v1alpha1.PhaseAwake, fixture.Never(fixture.Lobby("", fixture.T0)), observed)
	if len(changed) != 1 || *changed[0].Endpoints[0].Conditions.Ready || !*changed[0].Endpoints[0].Conditions.Serving {
		t.Errorf("after a change to handoff Never: %+v, want the servers to keep the clients that they have", changed)
	}
}

// With no ready endpoint kube-proxy sends new clients to servers that drain.
func TestSomethingIsReadyAfterEachSliceIsWritten(t *testing.T) {
	t.Parallel()
	o := seen.Of(2, seen.UpServer)
	o.Service.Spec.Selector = nil
	o.Pods.Draining = map[string]bool{"old": true}
	o.Sources = []discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-x7k2p"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.2.8"}, TargetRef: &corev1.ObjectReference{Name: "old"}, Conditions: discoveryv1.EndpointConditions{Serving: new(true)}},
			{Addresses: []string{"10.244.2.9"}, TargetRef: &corev1.ObjectReference{Name: "new"}, Conditions: discoveryv1.EndpointConditions{Serving: new(true)}},
		},
	}}
	o.Slices = []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.2.8"}}, {Addresses: []string{"10.244.2.9"}}}}}
	type endpoint struct {
		Address string
		Ready   bool
	}
	for _, c := range []struct {
		name string
		plan planner.Plan
		want []endpoint
	}{
		{
			"waking",
			planner.Plan{Phase: v1alpha1.PhaseAwake, Accepting: true, Roles: map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating}},
			[]endpoint{{"10.244.2.8", false}, {"10.244.2.9", true}, {"10.244.1.1", false}},
		},
		{
			"falling asleep",
			planner.Plan{Phase: v1alpha1.PhaseFallingAsleep, Roles: map[string]endpoints.Role{"resolver-1": endpoints.RoleReady}},
			[]endpoint{{"10.244.1.1", true}, {"10.244.2.8", false}, {"10.244.2.9", false}},
		},
	} {
		var have []endpoint
		for _, s := range seen.SlicesOf(fixture.Lobby("", fixture.T0), o, c.plan) {
			for _, e := range s.Endpoints {
				have = append(have, endpoint{e.Addresses[0], *e.Conditions.Ready})
			}
		}
		if diff := cmp.Diff(c.want, have); diff != "" {
			t.Errorf("%s: endpoints in the order of their writing (-want +got):\n%s", c.name, diff)
		}
	}
}

// Kubernetes writes the slices of the families one after the other. As long as one has
// only the servers from before the sleep, its new clients are the resolver's.
func TestAFamilyWithoutAServerYetKeepsTheResolver(t *testing.T) {
	t.Parallel()
	const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	server := func(address, name string, terminating bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{
			Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Name: name, UID: types.UID(name)},
			Conditions: discoveryv1.EndpointConditions{Serving: new(!terminating), Terminating: new(terminating)},
		}
	}
	o := seen.Of(2, seen.UpServer)
	o.Service.Spec.Selector = nil
	o.Service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	o.Resolvers[0].Addresses = []string{"10.244.1.1", "fd00::1"}
	for i := range o.Resolvers[1:] {
		o.Resolvers[i+1].Addresses = nil
	}
	o.Sources = []discoveryv1.EndpointSlice{
		{ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-a"}, AddressType: v4, Endpoints: []discoveryv1.Endpoint{server("10.244.2.9", "new", false)}},
		{ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-b"}, AddressType: v6, Endpoints: []discoveryv1.Endpoint{server("fd00::8", "old", true)}},
	}
	asleep := map[string]endpoints.Role{o.Resolvers[0].UID: endpoints.RoleReady}
	o.Slices = []discoveryv1.EndpointSlice{
		{AddressType: v6, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::8"}, TargetRef: &corev1.ObjectReference{UID: "old"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}}},
	}
	for _, family := range []discoveryv1.AddressType{v4, v6} {
		o.Slices = append(o.Slices, discoveryv1.EndpointSlice{AddressType: family, Endpoints: endpoints.ResolverEndpoints(o.Resolvers, asleep, family)})
	}
	o.Resolvers[0].Role = endpoints.RoleReady
	es := fixture.Lobby(v1alpha1.PhaseWaking, fixture.T0)
	now := fixture.T0.Add(time.Minute)
	ready := func(step string, want map[string]bool) {
		t.Helper()
		have := map[string]bool{}
		p := planner.Plan{Phase: v1alpha1.PhaseAwake}
		p.PlanRoles(now, es, o)
		for _, s := range seen.SlicesOf(es, o, p) {
			for _, e := range s.Endpoints {
				have[e.Addresses[0]] = *e.Conditions.Ready
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: endpoints that are ready (-want +got):\n%s", step, diff)
		}
	}
	ready("IPv6 is behind", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": true, "fd00::8": false})
	o.Resolvers[0].Ready = false
	ready("the resolver ends", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false, "fd00::8": false})
	o.Resolvers[0].Ready = true
	es.Status.Phase, es.Status.PhaseSince = v1alpha1.PhaseAwake, &metav1.MicroTime{Time: now.Add(-time.Minute)}
	ready("IPv6 is behind for long", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false, "fd00::8": false})
	es.Status.PhaseSince.Time = now
	o.Sources[1].Endpoints = append(o.Sources[1].Endpoints, server("fd00::9", "new", false))
	ready("IPv6 has the server", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false, "fd00::8": false, "fd00::9": true})
	// Pods of one family alone leave the other to nobody, as Kubernetes does.
	o.Sources[1].Endpoints = nil
	ready("the pods have no IPv6", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false})
}
