package route

import (
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var byText = cmp.Comparer(func(a, b *regexp.Regexp) bool { return reflect.DeepEqual(a, b) })

var byAddress = cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{})

// service builds an ElasticService.
type service struct{ *v1alpha1.ElasticService }

func newService(name string, uid types.UID, age time.Duration) service {
	return service{&v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(epoch.Add(-age)),
		},
		Spec: v1alpha1.ElasticServiceSpec{Service: name},
		Status: v1alpha1.ElasticServiceStatus{
			Phase: v1alpha1.PhaseAsleep, PrivateService: name + "-private", Readiness: v1alpha1.PodReadinessConnect,
		},
	}}
}

func (s service) port(name string, protocol v1alpha1.Protocol, number int32) service {
	s.Status.Ports = append(s.Status.Ports, v1alpha1.PortStatus{
		Name: name, Protocol: protocol, Readiness: v1alpha1.ReadinessAuto, ResolverPort: number,
	})
	return s
}

func (s service) phase(p v1alpha1.Phase) service {
	s.Status.Phase = p
	return s
}

// never makes all clients go through the resolver.
func never(s service, balance v1alpha1.Balance, proxy *v1alpha1.ProxyProtocol) service {
	s.Spec.Handoff, s.Spec.Balance, s.Spec.ProxyProtocol = v1alpha1.HandoffNever, balance, proxy
	return s
}

// slice builds an EndpointSlice of a private Service.
type slice struct{ *discoveryv1.EndpointSlice }

func newSlice(name, owner string) slice {
	return slice{&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: name, Labels: map[string]string{
				discoveryv1.LabelServiceName: owner, discoveryv1.LabelManagedBy: wellknown.EndpointSliceController, wellknown.PrivateServiceLabel: "lobby",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}}
}

func (s slice) port(name string, protocol corev1.Protocol, number int32) slice {
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number})
	return s
}

func (s slice) endpoint(address string, serving, terminating bool) slice {
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
		Addresses: []string{address},
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(true), Serving: &serving, Terminating: &terminating,
		},
	})
	return s
}

// pod reports whether the last endpoint is a pod.
func (s slice) pod() slice {
	s.Endpoints[len(s.Endpoints)-1].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "games", Name: "lobby-0", UID: "pod-a"}
	return s
}

func TestBuild(t *testing.T) {
	full := newService("lobby", "u1", time.Hour).port("game", v1alpha1.ProtocolTCP, 10001).port("voice", v1alpha1.ProtocolUDP, 10002)
	full.Spec.Hold = v1alpha1.Hold{
		Timeout: &metav1.Duration{Duration: 0}, MaxConnections: 7, MaxBytesPerConnection: 2048,
		HandshakeTimeout: &metav1.Duration{Duration: time.Second}, ReleaseConcurrency: 3,
	}
	full.Status.Readiness = v1alpha1.PodReadinessProbe
	full.Status.Ports[1].Readiness = v1alpha1.ReadinessConnect
	full.Spec.Ports = []v1alpha1.PortSpec{{Name: "game", AbortOnClose: new(true)}}
	games := newService("lobby", "u1", 0).phase(v1alpha1.PhaseWaking)
	since := metav1.NewMicroTime(epoch.Add(time.Minute))
	games.Status.PhaseSince = &since
	games.Spec.Wake = &v1alpha1.Wake{When: v1alpha1.WakeOnConnect}
	var gamePorts []Port
	for i, c := range []struct {
		protocol v1alpha1.Protocol
		network  Network
	}{
		{v1alpha1.ProtocolMinecraft, TCP}, {v1alpha1.ProtocolBedrock, UDP}, {v1alpha1.ProtocolSource, UDP}, {v1alpha1.ProtocolQuake3, UDP},
	} {
		name, number := string(c.protocol), int32(10001+i)
		games = games.port(name, c.protocol, number)
		gamePorts = append(gamePorts, Port{
			Name: name, Protocol: c.protocol, Network: c.network, ResolverPort: number, WakeOnConnect: true,
		})
	}
	games.Spec.Ports = []v1alpha1.PortSpec{{Name: "minecraft"}, {Name: "source", Asleep: &v1alpha1.Asleep{
		MOTD: "zzz", WakingMOTD: "ahh", Rejoin: "again", Version: "1.2", ProtocolVersion: 3, MaxPlayers: 4, Favicon: "data:",
		Map: "burrow", Game: "Dormice", Folder: "mice", AppID: 4294967295,
	}}}
	gamePorts[2].Answers = proto.Answers{
		Asleep: "zzz", Waking: "ahh", Rejoin: "again", Version: "1.2", Protocol: 3, MaxPlayers: 4, Favicon: "data:",
		Map: "burrow", Game: "Dormice", Folder: "mice", AppID: 4294967295,
	}
	web := newService("lobby", "u1", 0).phase(v1alpha1.PhaseAwake).port("web", v1alpha1.ProtocolHTTP, 10001).port("admin", v1alpha1.ProtocolHTTP, 10002)
	web.Status.Mode = v1alpha1.ModeServe
	web.Spec.Ports = []v1alpha1.PortSpec{{Name: "admin", AbortOnClose: new(false)}, {Name: "web", Asleep: &v1alpha1.Asleep{Probes: []v1alpha1.HTTPProbe{
		{Path: "/least"},
		{
			Method: "POST", Path: "/most", Headers: []v1alpha1.HTTPHeaderMatch{{Name: "A", Value: "b"}, {Name: "C", Prefix: "d"}},
			Response: v1alpha1.HTTPProbeResponse{Status: 204, Headers: []v1alpha1.HTTPHeader{{Name: "E", Value: "f"}}, Body: "g"},
		},
		{PathPrefix: "/h", QueryParams: []v1alpha1.HTTPQueryParamMatch{{Name: "i", Value: "j"}, {Name: "k", Regex: "^l"}}},
		{PathRegex: "m$", Headers: []v1alpha1.HTTPHeaderMatch{{Name: "N", Regex: "("}}},
	}}}}
	cases := map[string]struct {
		service service
		want    *Route
	}{
		"probes are answered, and new clients may go to the pods": {
			service: web,
			want: &Route{
				UID: "u1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAwake, Direct: true,
				Hold: Hold{Timeout: 5 * time.Minute, MaxConnections: 1000, MaxBytes: 65536, Handshake: 10 * time.Second}, Created: epoch, PrivateService: "lobby-private",
				Ports: []Port{
					{Name: "web", Protocol: v1alpha1.ProtocolHTTP, Network: TCP, ResolverPort: 10001, AbortOnClose: true, Probes: []proto.Probe{
						{Method: "GET", Path: "/least", Status: 200},
						{
							Method: "POST", Path: "/most", Headers: []proto.HeaderMatch{{Name: "A", Value: "b"}, {Name: "C", Value: "d", Prefix: true}},
							Status: 204, Fields: []proto.Header{{Name: "E", Value: "f"}}, Body: "g",
						},
						{
							Method: "GET", PathPrefix: "/h", Status: 200,
							Query: []proto.QueryMatch{{Name: "i", Value: "j"}, {Name: "k", Regex: regexp.MustCompile("^l")}},
						},
						{Method: "GET", PathRegex: regexp.MustCompile("m$"), Headers: []proto.HeaderMatch{{Name: "N", Regex: noText}}, Status: 200},
					}},
					{Name: "admin", Protocol: v1alpha1.ProtocolHTTP, Network: TCP, ResolverPort: 10002},
				},
			},
		},
		"games have their transport, and answers": {
			service: games,
			want: &Route{
				UID: "u1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseWaking, PhaseSince: epoch.Add(time.Minute),
				Hold: Hold{Timeout: 5 * time.Minute, MaxConnections: 1000, MaxBytes: 65536, Handshake: 10 * time.Second}, Created: epoch, PrivateService: "lobby-private",
				Ports: gamePorts,
			},
		},
		"with handoff Never servers are chosen": {
			service: never(newService("lobby", "u1", 0), "", nil),
			want: &Route{
				UID: "u1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAsleep,
				Hold: Hold{Timeout: 5 * time.Minute, MaxConnections: 1000, MaxBytes: 65536, Handshake: 10 * time.Second}, Created: epoch, PrivateService: "lobby-private",
				Balance: v1alpha1.BalanceSpread,
			},
		},
		"as the spec says, and clients are known by a header": {
			service: never(newService("lobby", "u1", 0), v1alpha1.BalancePacked, &v1alpha1.ProxyProtocol{
				Send: true, TrustedCIDRs: []string{"10.1.2.3/8", "2001:db8::/32"},
			}),
			want: &Route{
				UID: "u1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAsleep,
				Hold: Hold{Timeout: 5 * time.Minute, MaxConnections: 1000, MaxBytes: 65536, Handshake: 10 * time.Second}, Created: epoch, PrivateService: "lobby-private",
				Balance: v1alpha1.BalancePacked,
				Proxy:   Proxy{Send: true, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}},
			},
		},
		"what the spec and the status say is taken over": {
			service: full,
			want: &Route{
				UID: "u1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAsleep,
				Hold: Hold{Timeout: 0, MaxConnections: 7, MaxBytes: 2048, Handshake: time.Second, ReleaseConcurrency: 3}, Created: epoch.Add(-time.Hour), PrivateService: "lobby-private",
				Ports: []Port{
					{Name: "game", Protocol: v1alpha1.ProtocolTCP, Network: TCP, ResolverPort: 10001, Probed: true, AbortOnClose: true},
					{Name: "voice", Protocol: v1alpha1.ProtocolUDP, Network: UDP, ResolverPort: 10002, ByConnect: true},
				},
			},
		},
		"absent bounds are the API's defaults": {
			service: newService("lobby", "u1", 0),
			want: &Route{
				UID: "u1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAsleep,
				Hold: Hold{Timeout: 5 * time.Minute, MaxConnections: 1000, MaxBytes: 65536, Handshake: 10 * time.Second}, Created: epoch, PrivateService: "lobby-private",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Build(tc.service.ElasticService), byAddress, byText); diff != "" {
				t.Errorf("route (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientsAwaitAWakeUnlessTheServiceIsUpOrComesUp(t *testing.T) {
	want := map[v1alpha1.Phase]bool{
		"": true, v1alpha1.PhaseAsleep: true, v1alpha1.PhaseFallingAsleep: true,
		v1alpha1.PhaseWaking: false, v1alpha1.PhaseAwake: false,
	}
	for phase, await := range want {
		if got := (&Route{Phase: phase}).AwaitsWake(); got != await {
			t.Errorf("phase %q: %t, want %t", phase, got, await)
		}
	}
}

func TestBackends(t *testing.T) {
	at := netip.MustParseAddrPort
	unknown := newSlice("s", "p").port("game", corev1.ProtocolTCP, 25565)
	unknown.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.9"}}}
	notReady := newSlice("s", "p").port("game", corev1.ProtocolTCP, 25565)
	notReady.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{"10.0.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)},
	}}
	six := newSlice("six", "p").port("game", corev1.ProtocolTCP, 25565).endpoint("fd00::1", true, false)
	six.AddressType = discoveryv1.AddressTypeIPv6

	cases := map[string]struct {
		slices []slice
		want   []Backend
	}{
		"no slice, no backend": {want: []Backend{}},
		"ready is always true, so serving and terminating count": {
			slices: []slice{newSlice("s", "p").port("game", corev1.ProtocolTCP, 25565).
				endpoint("10.0.0.2", false, false).endpoint("10.0.0.1", true, false).endpoint("10.0.0.3", true, true)},
			want: []Backend{
				{Address: at("10.0.0.1:25565"), Serving: true},
				{Address: at("10.0.0.2:25565")},
				{Address: at("10.0.0.3:25565"), Serving: true, Terminating: true},
			},
		},
		"the number is each slice's own": {
			slices: []slice{
				newSlice("a", "p").port("game", corev1.ProtocolTCP, 1000).endpoint("10.0.0.1", true, false),
				newSlice("b", "p").port("query", corev1.ProtocolTCP, 9).port("game", corev1.ProtocolTCP, 2000).endpoint("10.0.0.2", true, false),
			},
			want: []Backend{
				{Address: at("10.0.0.1:1000"), Serving: true},
				{Address: at("10.0.0.2:2000"), Serving: true},
			},
		},
		"both families": {
			slices: []slice{six, newSlice("four", "p").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", true, false)},
			want: []Backend{
				{Address: at("10.0.0.1:25565"), Serving: true},
				{Address: at("[fd00::1]:25565"), Serving: true},
			},
		},
		"whose address it is": {
			slices: []slice{
				newSlice("a", "p").port("game", corev1.ProtocolTCP, 1).endpoint("10.0.0.1", true, false).pod(),
				newSlice("b", "p").port("game", corev1.ProtocolTCP, 1).endpoint("fd00::1", true, false).pod(),
			},
			want: []Backend{
				{Address: at("10.0.0.1:1"), Pod: "pod-a", Serving: true},
				{Address: at("[fd00::1]:1"), Pod: "pod-a", Serving: true},
			},
		},
		"the same name with another protocol is another port": {
			slices: []slice{newSlice("s", "p").port("game", corev1.ProtocolUDP, 1).endpoint("10.0.0.1", true, false)},
			want:   []Backend{},
		},
		"an address in two slices counts once, as its best": {
			slices: []slice{
				newSlice("a", "p").port("game", corev1.ProtocolTCP, 1).endpoint("10.0.0.1", true, true),
				newSlice("b", "p").port("game", corev1.ProtocolTCP, 1).endpoint("10.0.0.1", true, false),
			},
			want: []Backend{{Address: at("10.0.0.1:1"), Serving: true}},
		},
		"absent conditions mean serving":            {slices: []slice{unknown}, want: []Backend{{Address: at("10.0.0.9:25565"), Serving: true}}},
		"absent serving is as ready":                {slices: []slice{notReady}, want: []Backend{{Address: at("10.0.0.9:25565")}}},
		"an address that can't be read is left out": {slices: []slice{newSlice("s", "p").port("game", corev1.ProtocolTCP, 1).endpoint("x", true, false)}, want: []Backend{}},
		"a port without a number is left out":       {slices: []slice{newSlice("s", "p").port("game", corev1.ProtocolTCP, 0).endpoint("10.0.0.1", true, false)}, want: []Backend{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var all []*discoveryv1.EndpointSlice
			for _, s := range tc.slices {
				all = append(all, s.EndpointSlice)
			}
			if diff := cmp.Diff(tc.want, Backends(all, "game", TCP, overrides{}), byAddress); diff != "" {
				t.Errorf("backends (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsStrippedIsNotWhatRoutesAreMadeOf(t *testing.T) {
	lobby := newService("lobby", "u1", time.Hour).port("game", v1alpha1.ProtocolTCP, 10001)
	lobby.Status.Conditions = []metav1.Condition{
		{Type: "Ready"}, {Type: conditions.SourceIPPreserved, Status: metav1.ConditionTrue, Reason: reasons.OK}, {Type: "ServerUp"},
	}
	lobby.Spec.Wake = &v1alpha1.Wake{PerSourceRate: 5}
	lobby.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	want := Build(lobby.DeepCopy())
	if _, err := stripService(lobby.ElasticService); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, Build(lobby.ElasticService), byAddress); diff != "" {
		t.Errorf("route (-want +got):\n%s", diff)
	}
	if want.Ports[0].Guard.PerSourceRate != 5 {
		t.Errorf("the rules are %+v", want.Ports[0].Guard)
	}
	if lobby.ManagedFields != nil || len(lobby.Status.Conditions) != 1 {
		t.Error("nothing was stripped")
	}
	pods := newSlice("s1", "p").port("game", corev1.ProtocolTCP, 1).endpoint("10.0.0.1", true, false).pod()
	backends := Backends([]*discoveryv1.EndpointSlice{pods.DeepCopy()}, "game", TCP, overrides{})
	if _, err := stripSlice(pods.EndpointSlice); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(backends, Backends([]*discoveryv1.EndpointSlice{pods.EndpointSlice}, "game", TCP, overrides{})) {
		t.Error("the backends changed")
	}
}

func BenchmarkAThousandServicesStart(b *testing.B) {
	all := make([]*v1alpha1.ElasticService, 1000)
	for i := range all {
		name := "s" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		all[i] = newService(name, types.UID(name), time.Duration(i)).port("p", v1alpha1.ProtocolTCP, int32(10000+i)).ElasticService
	}
	for b.Loop() {
		table := NewTable(newSink())
		for _, es := range all {
			table.SetService(es)
		}
	}
}
