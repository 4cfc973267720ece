package front

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/resolverports"
)

func sharedService(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "mc"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "mc", Port: 25565, Protocol: corev1.ProtocolTCP}}},
	}
	change(s)
	return s
}

func TestPlanFront(t *testing.T) {
	t.Parallel()
	noChange := func(*corev1.Service) {}
	elsewhere := func(f *v1alpha1.Front) { f.Namespace = "edge" }
	allows := func(names string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Namespace, s.Annotations = "edge", map[string]string{wellknown.AllowedNamespacesAnnotation: names}
		}
	}
	two := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "tls", Port: 443, Protocol: corev1.ProtocolTCP})
	}
	game := []v1alpha1.PortStatus{{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}, {Name: "voice", Protocol: v1alpha1.ProtocolUDP}}
	status := func(change func(*v1alpha1.FrontStatus)) *v1alpha1.FrontStatus {
		s := &v1alpha1.FrontStatus{
			Service: "mc", Namespace: "games", Port: "mc", TargetPort: "game", ResolverPort: 12345, Hosts: []v1alpha1.FrontHost{"a.example", "b.example"},
		}
		change(s)
		return s
	}
	asIs := func(*v1alpha1.FrontStatus) {}
	for name, c := range map[string]struct {
		front   func(*v1alpha1.Front)
		ports   []v1alpha1.PortStatus
		service *corev1.Service
		elastic string
		rivals  map[v1alpha1.FrontHost]string
		full    bool
		want    *v1alpha1.FrontStatus
		// reason is empty where nothing stands in the way; says is in the message.
		reason, says string
	}{
		"the only ports": {service: sharedService(noChange), want: status(asIs)},
		"a port without a name": {
			service: sharedService(func(s *corev1.Service) { s.Spec.Ports[0].Name = "" }),
			want:    status(func(s *v1alpha1.FrontStatus) { s.Port = "" }),
		},
		"ports that are named": {
			front: func(f *v1alpha1.Front) { f.Port, f.TargetPort = "tls", "admin" }, service: sharedService(two),
			ports: append(game, v1alpha1.PortStatus{Name: "admin", Protocol: v1alpha1.ProtocolTLS}),
			want:  status(func(s *v1alpha1.FrontStatus) { s.Port, s.TargetPort = "tls", "admin" }),
		},
		"another namespace that allows it": {
			front: elsewhere, service: sharedService(allows("lobby, games")), want: status(func(s *v1alpha1.FrontStatus) { s.Namespace = "edge" }),
		},
		"another namespace that allows all": {
			front: elsewhere, service: sharedService(allows("*")), want: status(func(s *v1alpha1.FrontStatus) { s.Namespace = "edge" }),
		},
		"another namespace that allows others": {
			front: elsewhere, service: sharedService(allows("games-2,gam")), reason: reasons.NamespaceNotAllowed, says: "dormouse.dev/allowed-namespaces",
		},
		"another namespace that has no such Service": {
			front: elsewhere, reason: reasons.NamespaceNotAllowed, says: "isn't there or doesn't allow namespace games",
		},
		"no such Service": {reason: reasons.ServiceNotFound, says: "create it, without a selector"},
		"a headless Service": {
			service: sharedService(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
			reason:  reasons.ServiceUnsupported, says: "headless",
		},
		"a Service with a selector": {
			service: sharedService(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} }),
			reason:  reasons.HasSelector, says: "remove its selector",
		},
		"a Service that sleeps itself": {
			service: sharedService(noChange), elastic: "other", reason: reasons.ServiceTaken, says: "the own Service of ElasticService other",
		},
		"two ports, none named": {service: sharedService(two), reason: reasons.PortUnknown, says: "say in spec.front.port"},
		"a port that isn't there": {
			front: func(f *v1alpha1.Front) { f.Port = "web" }, service: sharedService(two), reason: reasons.PortUnknown, says: `"web"`,
		},
		"a UDP port": {
			service: sharedService(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
			reason:  reasons.PortUnknown, says: "name a TCP port",
		},
		"no port whose clients name hosts": {
			service: sharedService(noChange), ports: []v1alpha1.PortStatus{{Name: "game", Protocol: v1alpha1.ProtocolTCP}},
			reason: reasons.ProtocolUnsupported, says: "give one of them that protocol",
		},
		"a target whose clients don't": {
			front: func(f *v1alpha1.Front) { f.TargetPort = "voice" }, service: sharedService(noChange),
			reason: reasons.ProtocolUnsupported, says: `"voice" has the protocol udp`,
		},
		"a target that isn't there": {
			front: func(f *v1alpha1.Front) { f.TargetPort = "web" }, service: sharedService(noChange), reason: reasons.PortUnknown, says: `targetPort is "web"`,
		},
		"two targets": {
			service: sharedService(noChange), ports: append(game, v1alpha1.PortStatus{Name: "admin", Protocol: v1alpha1.ProtocolTLS}),
			reason: reasons.PortUnknown, says: "ports game, admin all have",
		},
		"a host that an older one has": {
			service: sharedService(noChange), rivals: map[v1alpha1.FrontHost]string{"a.example": "ElasticService old"},
			want:   status(func(s *v1alpha1.FrontStatus) { s.Hosts = []v1alpha1.FrontHost{"b.example"} }),
			reason: reasons.DuplicateHost, says: "a.example is that of ElasticService old",
		},
		"hosts that older ones all have": {
			service: sharedService(noChange), rivals: map[v1alpha1.FrontHost]string{"a.example": "ElasticService old", "b.example": "another"},
			reason: reasons.DuplicateHost, says: "b.example is that of another",
		},
		"no resolver port": {service: sharedService(noChange), full: true, reason: reasons.PortsExhausted, says: "no resolver port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
			es.Spec.Service = "lobby"
			es.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"a.example", "b.example"}}
			if c.front != nil {
				c.front(es.Spec.Front)
			}
			if es.Status.Ports = c.ports; c.ports == nil {
				es.Status.Ports = game
			}
			got, ob := Plan(es, Observed{Service: c.service, Elastic: c.elastic, Rivals: c.rivals}, func(port string) (int32, *obstacle.Obstacle) {
				if c.want != nil && port != c.want.Port {
					t.Errorf("a resolver port for %q is asked for", port)
				}
				if c.full {
					return 0, resolverports.New(nil, 0).Exhausted(resolverports.ErrNoPort, "games", "the front")
				}
				return 12345, nil
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("front (-want +got):\n%s", diff)
			}
			switch {
			case c.reason == "" && ob != nil:
				t.Errorf("%s stands in the way: %s", ob.Reason, ob.Message)
			case c.reason != "" && (ob == nil || ob.Reason != c.reason || !strings.Contains(ob.Message, c.says) || !strings.HasSuffix(ob.Message, ".")):
				t.Errorf("what stands in the way is %+v, want %s and %q", ob, c.reason, c.says)
			}
		})
	}
	if got, ob := Plan(&v1alpha1.ElasticService{}, Observed{}, nil); got != nil || ob != nil {
		t.Errorf("without a front there are %+v and %+v", got, ob)
	}
}

func TestWhatAFrontsOwnerSaysIsReadOrHoldsOn(t *testing.T) {
	t.Parallel()
	const trusted, sessions = wellknown.TrustedCIDRsAnnotation, wellknown.MaxSessionsPerSourceAnnotation
	before := &v1alpha1.FrontStatus{Service: "mc", Namespace: "games", TrustedCIDRs: []string{"10.1.0.0/16"}, MaxSessionsPerSource: 5}
	for name, c := range map[string]struct {
		annotations map[string]string
		local       bool
		trusted     []string
		sessions    int32
		preserved   bool
		says        string
	}{
		"nothing":                {nil, false, nil, 0, false, ""},
		"all":                    {map[string]string{trusted: "10.0.0.1/8, 2001:db8::/32", sessions: "20"}, false, []string{"10.0.0.0/8", "2001:db8::/32"}, 20, true, ""},
		"a policy":               {map[string]string{sessions: "1000000"}, true, nil, 1_000_000, true, ""},
		"no network":             {map[string]string{trusted: "10.0.0.1", sessions: "20"}, false, []string{"10.1.0.0/16"}, 20, true, `is "10.0.0.1" and must be up to 64 networks`},
		"too many networks":      {map[string]string{trusted: strings.Repeat("10.0.0.0/8,", 65)}, false, []string{"10.1.0.0/16"}, 0, true, "up to 64 networks"},
		"as many as may be":      {map[string]string{trusted: strings.Repeat("10.0.0.0/8,", 64)}, false, slices.Repeat([]string{"10.0.0.0/8"}, 64), 0, true, ""},
		"no number":              {map[string]string{sessions: "many"}, true, nil, 5, true, "must be a number from 1 to 1000000"},
		"none at all":            {map[string]string{sessions: "0"}, true, nil, 5, true, "must be a number from 1 to 1000000"},
		"more than anybody has":  {map[string]string{sessions: "1000001"}, true, nil, 5, true, "must be a number"},
		"a number beyond 32 bit": {map[string]string{sessions: "4294967297"}, true, nil, 5, true, "must be a number"},
	} {
		svc := sharedService(func(s *corev1.Service) {
			s.Annotations, s.Spec.Type = c.annotations, corev1.ServiceTypeLoadBalancer
			if c.local {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
		})
		got := &v1alpha1.FrontStatus{Service: "mc", Namespace: "games"}
		ob := setFront(got, before, svc)
		if !slices.Equal(got.TrustedCIDRs, c.trusted) || got.MaxSessionsPerSource != c.sessions || got.SourceIPPreserved != c.preserved {
			t.Errorf("%s: %+v", name, got)
		}
		if (ob == nil) != (c.says == "") || ob != nil && (ob.Reason != reasons.AnnotationInvalid || !strings.Contains(ob.Message, c.says)) {
			t.Errorf("%s: what stands in the way is %+v, want %q", name, ob, c.says)
		}
	}
	// So it is while something stands in the way of the service itself.
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
	es.Spec.Front = &v1alpha1.Front{Service: "mc", Namespace: "games"}
	es.Status.Front = before.DeepCopy()
	Refresh(es, sharedService(func(s *corev1.Service) { s.Annotations = map[string]string{trusted: "10.2.0.0/16"} }))
	if f := es.Status.Front; !slices.Equal(f.TrustedCIDRs, []string{"10.2.0.0/16"}) || f.MaxSessionsPerSource != 0 {
		t.Errorf("an ElasticService that is stopped has %+v", f)
	}
	es.Namespace = "other"
	if Refresh(es, sharedService(func(*corev1.Service) {})); es.Status.Front != nil {
		t.Error("who may not share the Service any more still does")
	}
	// Who has no part of the front yet doesn't know what the others go by.
	young := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
	young.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"a.example"}}
	young.Status.Ports = []v1alpha1.PortStatus{{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}}
	svc := sharedService(func(s *corev1.Service) { s.Annotations = map[string]string{trusted: "x"} })
	got, ob := Plan(young, Observed{Service: svc}, func(string) (int32, *obstacle.Obstacle) { return 12345, nil })
	if got != nil || ob == nil || ob.Reason != reasons.AnnotationInvalid {
		t.Errorf("it gets %+v, %+v", got, ob)
	}
	// Nor does who comes from another front.
	young.Status.Front = &v1alpha1.FrontStatus{Service: "other", Namespace: "games", TrustedCIDRs: []string{"10.9.0.0/16"}}
	if got, ob := Plan(young, Observed{Service: svc}, func(string) (int32, *obstacle.Obstacle) { return 12345, nil }); got != nil || ob == nil {
		t.Errorf("who moves from another front gets %+v, %+v", got, ob)
	}
	other := &v1alpha1.FrontStatus{Service: "mc", Namespace: "elsewhere"}
	ob = setFront(other, before, sharedService(func(s *corev1.Service) { s.Annotations = map[string]string{trusted: "x"} }))
	if ob == nil || other.TrustedCIDRs != nil {
		t.Error("what another front's owner said holds on")
	}
}

// That a resolver becomes ready is watched, and one that doesn't listen for long is asked
// seldom.
// A part of one front never gets what the owner of another one says.
func TestWhoMovesToAnotherFrontTakesNothingAlong(t *testing.T) {
	t.Parallel()
	for name, front := range map[string]*v1alpha1.Front{
		"another Service":   {Service: "mine", Namespace: "games"},
		"another namespace": {Service: "mc", Namespace: "tenant"},
		"no front":          nil,
	} {
		es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
		es.Spec.Front = front
		es.Status.Front = &v1alpha1.FrontStatus{Service: "mc", Namespace: "games", TrustedCIDRs: []string{"10.1.0.0/16"}}
		var mine *corev1.Service
		if front != nil {
			mine = sharedService(func(s *corev1.Service) {
				s.Namespace, s.Name = front.Namespace, front.Service
				s.Annotations = map[string]string{wellknown.TrustedCIDRsAnnotation: "0.0.0.0/0", wellknown.AllowedNamespacesAnnotation: "*"}
			})
		}
		if Refresh(es, mine); es.Status.Front != nil {
			t.Errorf("%s: its part of games/mc is %+v now, want none", name, es.Status.Front)
		}
	}
}

func TestTheVersionOfAFrontsSettingsIsThatOfTheirLastChange(t *testing.T) {
	t.Parallel()
	say := func(version, trusted string) *corev1.Service {
		return sharedService(func(s *corev1.Service) {
			s.ResourceVersion, s.Annotations = version, map[string]string{wellknown.TrustedCIDRsAnnotation: trusted}
		})
	}
	var before *v1alpha1.FrontStatus
	for _, step := range []struct{ version, trusted, want string }{
		{"5", "10.0.0.0/8", "5"}, {"7", "10.0.0.0/8", "5"}, {"8", "10.1.0.0/16", "8"}, {"9", "no network", "8"}, {"11", "10.0.0.0/8", "11"}, {"12", "", "12"},
	} {
		status := &v1alpha1.FrontStatus{Service: "mc", Namespace: "games"}
		_ = setFront(status, before, say(step.version, step.trusted))
		if status.SettingsVersion != step.want {
			t.Errorf("version %s says %q: the settings are of version %s, want %s", step.version, step.trusted, status.SettingsVersion, step.want)
		}
		before = status
	}
}

// A long annotation doesn't make a condition that the API server refuses.
func TestWhatIsQuotedIsShort(t *testing.T) {
	t.Parallel()
	svc := sharedService(func(s *corev1.Service) {
		s.Annotations = map[string]string{wellknown.TrustedCIDRsAnnotation: strings.Repeat("10.0.0.0/8,", 20_000)}
	})
	if ob := setFront(&v1alpha1.FrontStatus{}, nil, svc); ob == nil || len(ob.Message) > 600 {
		t.Errorf("got %d bytes", len(ob.Message))
	}
}
