package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// publicGame is a dual-stack Service as somebody has in front of players, with
// all that must not be copied.
func publicGame(s *corev1.Service) {
	s.Annotations = map[string]string{"lb.example.com/static-address": "198.51.100.7"}
	s.Labels = map[string]string{"team": "games"}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.LoadBalancerClass = new("example.com/lb")
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
	s.Spec.ExternalIPs = []string{"198.51.100.8"}
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	s.Spec.Ports = []corev1.ServicePort{
		{Name: "game", Port: 25565, TargetPort: intstr.FromString("game"), NodePort: 30565},
		{Name: "query", Port: 25565, TargetPort: intstr.FromInt32(19132), Protocol: corev1.ProtocolUDP},
		{Name: "web", Port: 80, TargetPort: intstr.FromInt32(8080), AppProtocol: new("kubernetes.io/ws")},
	}
}

func TestAServiceAtZeroIsHandedToTheResolversOnceTheyListen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster.resolvers.change(w.ns, func(b *behaviour) { b.closed["game"], b.closed["query"], b.closed["web"] = true, true, true })
	w.deployment("lobby", 0)
	public := w.service("lobby", publicGame)
	w.elastic("lobby")

	es := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.ResolverNotListening),
		hasCondition(conditions.EndpointsInSync, metav1.ConditionFalse, reasons.ResolverNotListening))
	wantPorts(t, es)
	wantPrivateService(t, w, es, public)

	none := map[string]string{}
	noEndpoints := func(ctx context.Context) error {
		list, err := w.ourSlices(ctx, "lobby")
		if diff := cmp.Diff(none, endpoints(list)); diff != "" {
			err = errors.Join(err, fmt.Errorf("endpoints (-want +got):\n%s", diff))
		}
		return err
	}
	cluster.resolvers.change(w.ns, func(b *behaviour) { b.closed["game"], b.closed["query"] = false, false })
	fixture.Consistently(t, 2*time.Second, "no endpoints while resolvers listen on two ports of three", noEndpoints)

	cluster.resolvers.change(w.ns, func(b *behaviour) { b.closed["web"] = false })
	want := resolversAre(takesClients)
	for _, r := range cluster.resolvers.members {
		want[r.pod.Status.PodIPs[1].IP] = takesClients
	}
	w.wantEndpoints("lobby", promptly, want)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy),
		hasCondition(conditions.TargetFound, metav1.ConditionTrue, reasons.OK),
		hasCondition(conditions.EndpointsInSync, metav1.ConditionTrue, reasons.OK),
		hasCondition(conditions.TriggersHealthy, metav1.ConditionTrue, reasons.NotNeeded),
		hasCondition(conditions.IdleSignal, metav1.ConditionTrue, reasons.NotNeeded),
		hasCondition(conditions.DirectGated, metav1.ConditionTrue, reasons.OK),
		hasCondition(conditions.TrafficPolicyUnsupported, metav1.ConditionFalse, reasons.OK))
	wantSlices(t, w, es)

	now := &corev1.Service{}
	if err := w.read(t.Context(), "lobby", now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(public, now); diff != "" {
		t.Errorf("the user's Service changed:\n%s", diff)
	}
	if n := w.replicas("lobby"); n != 0 {
		t.Errorf("the target has %d replicas, want 0: nobody woke it", n)
	}
}

func wantPorts(t *testing.T, es *v1alpha1.ElasticService) {
	t.Helper()
	type port struct {
		name     string
		protocol v1alpha1.Protocol
	}
	var got []port
	seen := map[int32]bool{}
	for _, p := range es.Status.Ports {
		got = append(got, port{p.Name, p.Protocol})
		if p.ResolverPort < wellknown.MinResolverPort || p.ResolverPort > wellknown.MaxResolverPort || seen[p.ResolverPort] {
			t.Errorf("port %s has resolver port %d, want one of its own from %d to %d",
				p.Name, p.ResolverPort, wellknown.MinResolverPort, wellknown.MaxResolverPort)
		}
		seen[p.ResolverPort] = true
	}
	want := []port{{"game", v1alpha1.ProtocolTCP}, {"query", v1alpha1.ProtocolUDP}, {"web", v1alpha1.ProtocolTCP}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(port{})); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func wantPrivateService(t *testing.T, w *world, es *v1alpha1.ElasticService, public *corev1.Service) {
	t.Helper()
	private := &corev1.Service{}
	if err := w.read(t.Context(), es.Status.PrivateService, private); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(private, es) {
		t.Errorf("the private Service is owned by %v, want the ElasticService", private.OwnerReferences)
	}
	if len(private.Annotations) > 0 || private.Labels["team"] != "" || private.Labels[wellknown.PrivateServiceLabel] != "lobby" {
		t.Errorf("the private Service has annotations %v and labels %v", private.Annotations, private.Labels)
	}
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, ClusterIPs: []string{corev1.ClusterIPNone},
		Selector: public.Spec.Selector, PublishNotReadyAddresses: true,
		IPFamilies: public.Spec.IPFamilies, IPFamilyPolicy: public.Spec.IPFamilyPolicy,
		SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
	}
	for _, p := range public.Spec.Ports {
		p.NodePort = 0
		want.Ports = append(want.Ports, p)
	}
	if diff := cmp.Diff(want, private.Spec); diff != "" {
		t.Errorf("the private Service's spec (-want +got):\n%s", diff)
	}
}

func wantSlices(t *testing.T, w *world, es *v1alpha1.ElasticService) {
	t.Helper()
	list, err := w.ourSlices(t.Context(), "lobby")
	if err != nil {
		t.Fatal(err)
	}
	families := map[discoveryv1.AddressType]bool{}
	for _, s := range list {
		families[s.AddressType] = true
		if !metav1.IsControlledBy(&s, es) {
			t.Errorf("slice %s is owned by %v, want the ElasticService", s.Name, s.OwnerReferences)
		}
		var want []discoveryv1.EndpointPort
		for _, p := range es.Status.Ports {
			protocol := corev1.ProtocolTCP
			if p.Protocol == v1alpha1.ProtocolUDP {
				protocol = corev1.ProtocolUDP
			}
			want = append(want, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.ResolverPort), Protocol: new(protocol)})
		}
		want[2].AppProtocol = new("kubernetes.io/ws")
		if diff := cmp.Diff(want, s.Ports); diff != "" {
			t.Errorf("ports of slice %s (-want +got):\n%s", s.Name, diff)
		}
		for i, e := range s.Endpoints {
			pod := cluster.resolvers.members[i].pod
			if ptr.Deref(e.NodeName, "") != pod.Spec.NodeName || e.TargetRef == nil || e.TargetRef.UID != pod.UID {
				t.Errorf("endpoint %v of slice %s is on node %v and of %v, want node %s, Pod %s",
					e.Addresses, s.Name, e.NodeName, e.TargetRef, pod.Spec.NodeName, pod.Name)
			}
		}
	}
	if len(list) != 2 || len(families) != 2 {
		t.Errorf("%d slices of %d families, want one of each of two", len(list), len(families))
	}
}

func TestEachPortOfManyServicesHasAResolverPortOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const services = 30
	for i := range services {
		name := fmt.Sprintf("lobby-%d", i)
		w.deployment(name, 0)
		w.service(name, func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "voice", Port: 9987, Protocol: corev1.ProtocolUDP})
		})
		w.elastic(name)
	}
	for i := range services {
		w.want(fmt.Sprintf("lobby-%d", i), promptly, ready)
	}
	// Other tests' count as well: a resolver port is unique in the cluster.
	var list v1alpha1.ElasticServiceList
	if err := w.c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	owners := map[int32]string{}
	for _, es := range list.Items {
		for _, p := range es.Status.Ports {
			if other := owners[p.ResolverPort]; other != "" {
				t.Errorf("resolver port %d is of %s and of %s/%s", p.ResolverPort, other, es.Namespace, es.Name)
			}
			owners[p.ResolverPort] = es.Namespace + "/" + es.Name
		}
	}
	if len(owners) < 2*services {
		t.Errorf("%d resolver ports, want %d at least", len(owners), 2*services)
	}
}

func TestThePrivateServiceAndSlicesFollowTheServicesPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	public := w.service("lobby")
	w.elastic("lobby")
	before := w.want("lobby", promptly, ready)

	original := public.DeepCopy()
	public.Spec.Ports = append(public.Spec.Ports, corev1.ServicePort{Name: "query", Port: 25565, Protocol: corev1.ProtocolUDP})
	public.Spec.Selector = map[string]string{"app": "other"}
	if err := w.c.Patch(t.Context(), public, client.MergeFrom(original)); err != nil {
		t.Fatal(err)
	}
	after := w.want("lobby", promptly, ready, func(es *v1alpha1.ElasticService) error {
		if len(es.Status.Ports) != 2 {
			return fmt.Errorf("%d ports, want 2", len(es.Status.Ports))
		}
		return nil
	})
	if after.Status.Ports[0].ResolverPort != before.Status.Ports[0].ResolverPort {
		t.Errorf("resolver port of game went from %d to %d, want the same", before.Status.Ports[0].ResolverPort, after.Status.Ports[0].ResolverPort)
	}
	fixture.Eventually(t, promptly, "private Service and slice", func(ctx context.Context) error {
		private := &corev1.Service{}
		if err := w.read(ctx, after.Status.PrivateService, private); err != nil {
			return err
		}
		list, err := w.ourSlices(ctx, "lobby")
		if err != nil {
			return err
		}
		if len(private.Spec.Ports) != 2 || private.Spec.Selector["app"] != "other" || len(list) != 1 || len(list[0].Ports) != 2 {
			return fmt.Errorf("private Service %v, slices %v", private.Spec, list)
		}
		return nil
	})
}
