package elasticservice_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

func front(text string) string { return "spec: {front: {service: mc, " + text + "}}" }

func manyHosts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "h%d.example.com,", i)
	}
	return b.String()
}

// behind makes a sleeping Minecraft service that shares the Service mc.
func (w *world) behind(name string, change func(*v1alpha1.Front), hosts ...v1alpha1.FrontHost) *v1alpha1.ElasticService {
	w.t.Helper()
	w.deployment(name, 0)
	w.service(name)
	return w.elastic(name, func(es *v1alpha1.ElasticService) {
		es.Spec.Ports = []v1alpha1.PortSpec{{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}}
		es.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: hosts}
		change(es.Spec.Front)
	})
}

func sameNamespace(*v1alpha1.Front) {}

var frontReady = hasCondition(conditions.FrontReady, metav1.ConditionTrue, reasons.OK)

// leads says by which names a front leads to an ElasticService.
func leads(hosts ...v1alpha1.FrontHost) check {
	return func(es *v1alpha1.ElasticService) error {
		var got []v1alpha1.FrontHost
		if es.Status.Front != nil {
			got = es.Status.Front.Hosts
		}
		if diff := cmp.Diff(hosts, got); diff != "" {
			return fmt.Errorf("hosts (-want +got):\n%s", diff)
		}
		return nil
	}
}

func TestAFrontsEndpointsAreAlwaysTheResolvers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("mc", selectorless)
	w.behind("a", sameNamespace, "a.example.com")
	w.behind("b", sameNamespace, "b.example.com", "*.b.example.com")
	a := w.want("a", promptly, ready, frontReady, leads("a.example.com"))
	b := w.want("b", promptly, ready, frontReady, leads("b.example.com", "*.b.example.com"))
	w.wantEndpoints("mc", promptly, resolversAre(takesClients))
	port := a.Status.Front.ResolverPort
	if b.Status.Front.ResolverPort != port || port == a.Status.Ports[0].ResolverPort || port < wellknown.MinResolverPort || port > wellknown.MaxResolverPort {
		t.Errorf("the front has the resolver ports %d and %d, and a's own is %d", port, b.Status.Front.ResolverPort, a.Status.Ports[0].ResolverPort)
	}
	slices, err := w.ourSlices(t.Context(), "mc")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slices {
		if len(s.Ports) != 1 || *s.Ports[0].Name != "game" || *s.Ports[0].Port != port {
			t.Errorf("slice %s has the ports %v, want game at %d", s.Name, s.Ports, port)
		}
	}
	// Awake or asleep, the front stays as it is.
	w.wake(0, resolverToken(t), "a")
	w.servers("a", newServer())
	w.want("a", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.wantEndpoints("mc", promptly, resolversAre(takesClients))

	// It ends with the last that shares it; a Service is nobody's to delete.
	for _, name := range []string{"a", "b"} {
		es := &v1alpha1.ElasticService{}
		if err := w.read(t.Context(), name, es); err != nil {
			t.Fatal(err)
		}
		w.edit(es, func() { es.Spec.Front = nil })
		w.want(name, promptly, ready, leads(), hasCondition(conditions.FrontReady, metav1.ConditionTrue, reasons.NotNeeded))
		if name == "a" {
			w.wantEndpoints("mc", promptly, resolversAre(takesClients))
		}
	}
	w.wantEndpoints("mc", promptly, map[string]string{})
}

func TestOfTwoServicesWithOneHostTheYoungerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("mc", selectorless)
	older := w.behind("older", sameNamespace, "a.example.com", "both.example.com")
	w.want("older", promptly, ready, frontReady)
	w.waitForAnotherSecond(older.CreationTimestamp)
	w.behind("younger", sameNamespace, "both.example.com", "b.example.com")
	es := w.want("younger", promptly, leads("b.example.com"),
		hasCondition(conditions.FrontReady, metav1.ConditionFalse, reasons.DuplicateHost),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.DuplicateHost))
	message := meta.FindStatusCondition(es.Status.Conditions, conditions.FrontReady).Message
	if want := "both.example.com is that of ElasticService older"; !strings.Contains(message, want) {
		t.Errorf("the message is %q, want %q in it", message, want)
	}
	w.want("older", promptly, ready, frontReady, leads("a.example.com", "both.example.com"))
	if err := w.read(t.Context(), "older", older); err != nil {
		t.Fatal(err)
	}
	w.edit(older, func() { older.Spec.Front.Hosts = older.Spec.Front.Hosts[:1] })
	w.want("younger", promptly, ready, frontReady, leads("both.example.com", "b.example.com"))
}

func TestAFrontThatCanNotBeHadSaysWhatToChangeAndHeals(t *testing.T) {
	t.Parallel()
	edit := func(w *world, change func(*corev1.Service)) {
		s := &corev1.Service{}
		if err := w.read(w.t.Context(), "mc", s); err != nil {
			w.t.Fatal(err)
		}
		w.edit(s, func() { change(s) })
	}
	for name, c := range map[string]struct {
		setUp  func(*world)
		reason string
		mend   func(*world)
	}{
		"no such Service": {
			func(*world) {}, reasons.ServiceNotFound,
			func(w *world) { w.service("mc", selectorless) },
		},
		"a selector": {
			func(w *world) { w.service("mc") }, reasons.HasSelector,
			func(w *world) { edit(w, selectorless) },
		},
		"a UDP port": {
			func(w *world) {
				w.service("mc", selectorless, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
			}, reasons.PortUnknown,
			func(w *world) { edit(w, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP }) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.setUp(w)
			w.behind("lobby", sameNamespace, "a.example.com")
			w.want("lobby", promptly, leads(), hasCondition(conditions.FrontReady, metav1.ConditionFalse, c.reason))
			// Its own address works meanwhile.
			w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
			c.mend(w)
			w.want("lobby", promptly, ready, frontReady, leads("a.example.com"))
			w.wantEndpoints("mc", promptly, resolversAre(takesClients))
		})
	}
}

func TestAFrontServesOtherNamespacesOnlyWhereItNamesThem(t *testing.T) {
	t.Parallel()
	edge, games := newWorld(t), newWorld(t)
	edge.service("mc", selectorless)
	games.behind("lobby", func(f *v1alpha1.Front) { f.Namespace = edge.ns }, "a.example.com")
	games.want("lobby", promptly, leads(), hasCondition(conditions.FrontReady, metav1.ConditionFalse, reasons.NamespaceNotAllowed))
	allow := func(names string) {
		s := &corev1.Service{}
		if err := edge.read(t.Context(), "mc", s); err != nil {
			t.Fatal(err)
		}
		edge.edit(s, func() { metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.AllowedNamespacesAnnotation, names) })
	}
	allow("somebody, " + games.ns)
	games.want("lobby", promptly, ready, frontReady, leads("a.example.com"))
	edge.wantEndpoints("mc", promptly, resolversAre(takesClients))
	allow("somebody")
	games.want("lobby", promptly, leads(), hasCondition(conditions.FrontReady, metav1.ConditionFalse, reasons.NamespaceNotAllowed))
	edge.wantEndpoints("mc", promptly, map[string]string{})
}

func TestAFrontPointsAtNobodyWhoDoesNotListen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster.resolvers.change(w.ns, func(b *behaviour) { b.closed["front"] = true })
	w.service("mc", selectorless)
	w.behind("lobby", sameNamespace, "a.example.com")
	w.want("lobby", promptly, ready, hasCondition(conditions.FrontReady, metav1.ConditionFalse, reasons.ResolverNotListening))
	w.wantEndpoints("mc", promptly, map[string]string{})
	cluster.resolvers.change(w.ns, func(b *behaviour) { delete(b.closed, "front") })
	w.want("lobby", promptly, frontReady)
	w.wantEndpoints("mc", promptly, resolversAre(takesClients))
	// Slices that somebody deletes come back.
	fixture.Eventually(t, promptly, "the slices are deleted", func(ctx context.Context) error {
		slices, err := w.ourSlices(ctx, "mc")
		for i := range slices {
			if err := w.c.Delete(ctx, &slices[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return err
	})
	w.wantEndpoints("mc", promptly, resolversAre(takesClients))
}
