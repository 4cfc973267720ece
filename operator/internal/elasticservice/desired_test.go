package elasticservice

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

func TestThePrivateServiceOpensNothingToTheOutside(t *testing.T) {
	svc := service()
	svc.Annotations = map[string]string{"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}
	svc.Labels = map[string]string{"external-dns": "yes"}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.LoadBalancerIP = "203.0.113.7"
	svc.Spec.ExternalIPs = []string{"203.0.113.8"}
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.Ports[0].NodePort = 30777
	svc.Spec.Ports[0].TargetPort = intstr.FromString("game-port")
	es := lobby("", t0)

	got := desiredPrivateService(es, svc, svc.Spec.Selector)
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "lobby-dormouse", Namespace: "games",
			Labels:          map[string]string{v1alpha1.PrivateServiceLabel: "lobby", "app.kubernetes.io/managed-by": "dormouse"},
			OwnerReferences: []metav1.OwnerReference{ownerReference(es)},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "None", PublishNotReadyAddresses: true,
			Selector: map[string]string{"app": "lobby"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "game", Protocol: corev1.ProtocolTCP, Port: 7777, TargetPort: intstr.FromString("game-port")}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("private Service (-want +got):\n%s", diff)
	}
}

func TestThePrivateServicesNameFitsAndIsTheServicesOwn(t *testing.T) {
	long := strings.Repeat("a", 62)
	x, y := privateServiceName(long+"x"), privateServiceName(long+"y")
	if len(x) > 63 || len(y) > 63 || x == y {
		t.Errorf("names %q and %q: want two different ones of at most 63 characters", x, y)
	}
}

func TestResolverSlices(t *testing.T) {
	es := lobby("", t0)
	o := seen(0)
	o.service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	o.resolvers = []resolver{standing("resolver-2"), standing("resolver-1")}
	o.resolvers[0].addresses = []string{"10.244.1.2", "fd00::2"}
	o.resolvers[1].addresses = []string{"10.244.1.1", "fd00::1"}
	o.resolvers[1].node = "node-1"
	slices := desiredSlices(es, o, plan{roles: map[string]role{"resolver-1": roleTerminating, "resolver-2": roleReady}})
	if len(slices) != 2 {
		t.Fatalf("%d slices, want one for each address family", len(slices))
	}
	v4 := slices[0]
	if v4.AddressType != discoveryv1.AddressTypeIPv4 || slices[1].AddressType != discoveryv1.AddressTypeIPv6 {
		t.Errorf("families %s and %s, want IPv4 and IPv6", v4.AddressType, slices[1].AddressType)
	}
	wantLabels := map[string]string{
		"kubernetes.io/service-name": "lobby", "endpointslice.kubernetes.io/managed-by": "dormouse.dev",
		v1alpha1.PrivateServiceLabel: "lobby", "app.kubernetes.io/managed-by": "dormouse",
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
	got := serverSlice(lobby("", t0), &source, &observed{}, map[string]bool{"10.244.2.3": true, "10.244.2.4": true}, true)
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

func TestServersGetNewClientsOnlyWhileAwakeAndHandedTo(t *testing.T) {
	o := seen(1, upServer)
	o.service.Spec.Selector = nil
	o.sources = []discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-x7k2p"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.2.9"}, Conditions: discoveryv1.EndpointConditions{Serving: new(true)}}},
	}}
	known := o
	known.slices = []discoveryv1.EndpointSlice{*desiredSlices(lobby("", t0), o, plan{phase: v1alpha1.PhaseAwake})[0]}
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, v1alpha1.PhaseFallingAsleep} {
		slices := desiredSlices(lobby("", t0), known, plan{phase: phase})
		if len(slices) != 1 {
			t.Fatalf("%s: %d slices, want the servers'", phase, len(slices))
		}
		if got, want := *slices[0].Endpoints[0].Conditions.Ready, phase == v1alpha1.PhaseAwake; got != want {
			t.Errorf("%s: a server that is up is ready = %v, want %v", phase, got, want)
		}
	}
	if s := desiredSlices(never(lobby("", t0)), o, plan{phase: v1alpha1.PhaseAwake}); len(s) != 0 {
		t.Errorf("handoff Never: %d slices of servers that never had clients, want none", len(s))
	}
	changed := desiredSlices(never(lobby("", t0)), known, plan{phase: v1alpha1.PhaseAwake})
	if len(changed) != 1 || *changed[0].Endpoints[0].Conditions.Ready || !*changed[0].Endpoints[0].Conditions.Serving {
		t.Errorf("after a change to handoff Never: %+v, want the servers to keep the clients that they have", changed)
	}
}

// With no ready endpoint kube-proxy sends new clients to servers that drain.
func TestSomethingIsReadyAfterEachSliceIsWritten(t *testing.T) {
	t.Parallel()
	o := seen(2, upServer)
	o.service.Spec.Selector = nil
	o.draining = map[string]bool{"old": true}
	o.sources = []discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-x7k2p"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.2.8"}, TargetRef: &corev1.ObjectReference{Name: "old"}, Conditions: discoveryv1.EndpointConditions{Serving: new(true)}},
			{Addresses: []string{"10.244.2.9"}, TargetRef: &corev1.ObjectReference{Name: "new"}, Conditions: discoveryv1.EndpointConditions{Serving: new(true)}},
		},
	}}
	o.slices = []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.2.8"}}, {Addresses: []string{"10.244.2.9"}}}}}
	type endpoint struct {
		Address string
		Ready   bool
	}
	for _, c := range []struct {
		name string
		plan plan
		want []endpoint
	}{
		{
			"waking",
			plan{phase: v1alpha1.PhaseAwake, roles: map[string]role{"resolver-1": roleTerminating}},
			[]endpoint{{"10.244.2.8", false}, {"10.244.2.9", true}, {"10.244.1.1", false}},
		},
		{
			"falling asleep",
			plan{phase: v1alpha1.PhaseFallingAsleep, roles: map[string]role{"resolver-1": roleReady}},
			[]endpoint{{"10.244.1.1", true}, {"10.244.2.8", false}, {"10.244.2.9", false}},
		},
	} {
		var have []endpoint
		for _, s := range desiredSlices(lobby("", t0), o, c.plan) {
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
	o := seen(2, upServer)
	o.service.Spec.Selector = nil
	o.service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	o.resolvers[0].addresses = []string{"10.244.1.1", "fd00::1"}
	for i := range o.resolvers[1:] {
		o.resolvers[i+1].addresses = nil
	}
	o.sources = []discoveryv1.EndpointSlice{
		{ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-a"}, AddressType: v4, Endpoints: []discoveryv1.Endpoint{server("10.244.2.9", "new", false)}},
		{ObjectMeta: metav1.ObjectMeta{Name: "lobby-dormouse-b"}, AddressType: v6, Endpoints: []discoveryv1.Endpoint{server("fd00::8", "old", true)}},
	}
	asleep := map[string]role{o.resolvers[0].uid: roleReady}
	o.slices = []discoveryv1.EndpointSlice{
		{AddressType: v6, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd00::8"}, TargetRef: &corev1.ObjectReference{UID: "old"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}}},
	}
	for _, family := range []discoveryv1.AddressType{v4, v6} {
		o.slices = append(o.slices, discoveryv1.EndpointSlice{AddressType: family, Endpoints: resolverEndpoints(o.resolvers, asleep, family)})
	}
	es := lobby(v1alpha1.PhaseWaking, t0)
	now := t0.Add(time.Minute)
	ready := func(step string, want map[string]bool) {
		t.Helper()
		have := map[string]bool{}
		p := plan{phase: v1alpha1.PhaseAwake}
		p.planRoles(now, es, o)
		for _, s := range desiredSlices(es, o, p) {
			for _, e := range s.Endpoints {
				have[e.Addresses[0]] = *e.Conditions.Ready
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: endpoints that are ready (-want +got):\n%s", step, diff)
		}
	}
	ready("IPv6 is behind", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": true, "fd00::8": false})
	o.resolvers[0].ready = false
	ready("the resolver ends", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false, "fd00::8": false})
	o.resolvers[0].ready = true
	es.Status.Phase, es.Status.PhaseSince = v1alpha1.PhaseAwake, &metav1.MicroTime{Time: now.Add(-time.Minute)}
	ready("IPv6 is behind for long", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false, "fd00::8": false})
	es.Status.PhaseSince.Time = now
	o.sources[1].Endpoints = append(o.sources[1].Endpoints, server("fd00::9", "new", false))
	ready("IPv6 has the server", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false, "fd00::8": false, "fd00::9": true})
	// Pods of one family alone leave the other to nobody, as Kubernetes does.
	o.sources[1].Endpoints = nil
	ready("the pods have no IPv6", map[string]bool{"10.244.1.1": false, "10.244.2.9": true, "fd00::1": false})
}

func TestAWakeWantsAsManyAsBeforeOnlyFromZero(t *testing.T) {
	es := lobby("", t0)
	es.Status.ReplicasBeforeSleep = 5
	if got, want := Wanted(es), (target.Replicas{AtLeast: 1, FromZero: 5}); got != want {
		t.Errorf("wanted = %+v, want %+v", got, want)
	}
	es.Spec.MinReplicas = ptr.To[int32](3)
	if got, want := Wanted(es), (target.Replicas{AtLeast: 3, FromZero: 3}); got != want {
		t.Errorf("wanted with minReplicas = %+v, want %+v", got, want)
	}
	if got, want := Wanted(lobby("", t0)), (target.Replicas{AtLeast: 1, FromZero: 1}); got != want {
		t.Errorf("wanted the first time = %+v, want %+v", got, want)
	}
}

func TestSelectorlessServicesFindPodsByTheTargetsScale(t *testing.T) {
	svc := service()
	svc.Spec.Selector = nil
	got, ob := podSelector(svc, "app=lobby,tier=game")
	if ob != nil || cmp.Diff(map[string]string{"app": "lobby", "tier": "game"}, got) != "" {
		t.Errorf("selector = %v, %v", got, ob)
	}
	for _, bad := range []string{"", "app in (a,b)", "app!=x"} {
		if _, ob := podSelector(svc, bad); ob == nil || ob.reason != v1alpha1.ReasonNoTargetSelector {
			t.Errorf("selector %q: obstacle = %v, want %s", bad, ob, v1alpha1.ReasonNoTargetSelector)
		}
	}
}
