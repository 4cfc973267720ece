package elasticservice_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.c.Delete(w.t.Context(), &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}); err != nil {
		w.t.Fatalf("delete ElasticService %s: %v", name, err)
	}
}

func (w *world) wantGone(name string, within time.Duration) {
	w.t.Helper()
	fixture.Eventually(w.t, within, "ElasticService "+name+" is gone", func(ctx context.Context) error {
		es := &v1alpha1.ElasticService{}
		err := w.read(ctx, name, es)
		if err == nil {
			return fmt.Errorf("it is %s with finalizers %v", es.Status.Phase, es.Finalizers)
		}
		return client.IgnoreNotFound(err)
	})
}

// waitForAnotherSecond lets two objects' ages differ, which count in seconds.
func (w *world) waitForAnotherSecond(created metav1.Time) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "another second", func(context.Context) error {
		if time.Since(created.Time) < time.Second {
			return fmt.Errorf("it is still %s", created)
		}
		return nil
	})
}

// wantNothingLeft checks that only the user's Service remains, as it was.
func (w *world) wantNothingLeft(public *corev1.Service) {
	w.t.Helper()
	list, err := w.ourSlices(w.t.Context(), public.Name)
	if err != nil || len(list) > 0 {
		w.t.Errorf("%d slices of ours are left, error %v; want none", len(list), err)
	}
	if err := w.read(w.t.Context(), public.Name+"-dormouse", &corev1.Service{}); !apierrors.IsNotFound(err) {
		w.t.Errorf("the private Service is left: %v", err)
	}
	now := &corev1.Service{}
	if err := w.read(w.t.Context(), public.Name, now); err != nil || now.ResourceVersion != public.ResourceVersion {
		w.t.Errorf("the user's Service went from version %s to %s, error %v; want it untouched", public.ResourceVersion, now.ResourceVersion, err)
	}
}

func TestADeletedElasticServiceLeavesItsServiceAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	public := w.service("lobby")
	w.elastic("lobby")
	w.want("lobby", promptly, ready)
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	since := w.latest()
	w.delete("lobby")
	w.must("the target at 1", promptly, since, toReplicas("lobby", 1))
	// Until a server is up the resolvers hold clients.
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	w.servers("lobby", newServer())
	w.wantEndpoints("lobby", promptly, resolversAre(keepsClients))
	w.wantGone("lobby", afterLingering)
	w.wantNothingLeft(public)
	if n := w.replicas("lobby"); n != 1 {
		t.Errorf("the target wants %d replicas, want 1", n)
	}
}

func TestADeletedElasticServiceLeavesTheServersOfASelectorlessService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 1)
	public := w.service("lobby", selectorless)
	w.elastic("lobby")
	server := newServer()
	w.servers("lobby", server)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.wantEndpoints("lobby", afterLingering, map[string]string{server.address: takesClients})
	w.delete("lobby")
	w.wantGone("lobby", promptly)
	list, err := w.ourSlices(t.Context(), "lobby")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || endpoints(list)[server.address] != takesClients || metav1.GetControllerOf(&list[0]) != nil {
		t.Fatalf("slices are %v, want one with the server, and nobody in control of it", list)
	}
	w.wantWarning("EndpointsLeft", "ElasticService lobby is deleted, and the Service has no selector")
	if owners := list[0].OwnerReferences; len(owners) != 1 || owners[0].UID != public.UID {
		t.Errorf("the slice is owned by %v, want the Service alone, with which it goes", owners)
	}

	// Another ElasticService takes it over, and not its pods, which are others by
	// now. Kubernetes has removed what it wrote for the first private Service.
	if err := w.c.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace(w.ns),
		client.MatchingLabels{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}); err != nil {
		t.Fatal(err)
	}
	w.elastic("lobby")
	next := newServer()
	w.servers("lobby", next)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.wantEndpoints("lobby", afterLingering, map[string]string{next.address: takesClients})
	if err := w.c.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace(w.ns),
		client.MatchingLabels{discoveryv1.LabelManagedBy: wellknown.ManagedBy}); err != nil {
		t.Fatal(err)
	}
	w.wantEndpoints("lobby", promptly, map[string]string{next.address: takesClients})
}

func TestADeletedElasticServiceWithHandoffNeverHandsOverFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 1)
	w.service("lobby", selectorless)
	w.elastic("lobby", handoffNever)
	server := newServer()
	w.servers("lobby", server)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	w.delete("lobby")
	w.wantGone("lobby", afterLingering)
	w.wantEndpoints("lobby", promptly, map[string]string{server.address: takesClients})
}

// Of two with one target the older one's clients wake it, and nothing else of the other does.
func TestATargetThatAnOlderOneHasSleepsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("heir", 0)
	w.service("heir")
	heir := w.elastic("heir")
	w.waitForAnotherSecond(heir.CreationTimestamp)
	w.asleep("lobby")
	es := w.want("lobby", promptly, ready)
	w.edit(es, func() { es.Spec.ScaleTargetRef.Name = "heir" })
	w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetTaken))
	since := w.latest()
	body := []byte(`{"count":1,"svc":"lobby","namespace":"` + w.ns + `"}`)
	for replica := range cluster.operators {
		wantRefusal(t, replica, resolverToken(t), body, http.StatusNotFound, "an older ElasticService has the target")
	}
	public := &corev1.Service{}
	if err := w.read(t.Context(), "lobby", public); err != nil {
		t.Fatal(err)
	}
	w.delete("lobby")
	w.wantGone("lobby", promptly)
	w.wantNothingLeft(public)
	for _, name := range []string{"heir", "lobby"} {
		if n := w.count(since, writesTo(name)); n > 0 || w.replicas(name) != 0 {
			t.Errorf("the target %s was written %d times and wants %d replicas, want none of both", name, n, w.replicas(name))
		}
	}
}

func TestADeletionWaitsForNothingThatIsGone(t *testing.T) {
	t.Parallel()
	for name, setUp := range map[string]func(*world){
		"without a target": func(w *world) {
			w.service("lobby")
			w.elastic("lobby")
			w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetNotFound))
		},
		"without a Service": func(w *world) {
			w.deployment("lobby", 0)
			w.elastic("lobby")
			w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.ServiceNotFound))
		},
		"with a Service that can't sleep": func(w *world) {
			w.deployment("lobby", 0)
			w.service("lobby", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
			w.elastic("lobby")
			w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.ServiceUnsupported))
		},
		"after the target was deleted": func(w *world) {
			d := w.deployment("lobby", 0)
			w.service("lobby")
			w.elastic("lobby")
			w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
			if err := w.c.Delete(w.t.Context(), d); err != nil {
				w.t.Fatal(err)
			}
			w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetNotFound))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			setUp(w)
			public := &corev1.Service{}
			err := w.read(t.Context(), "lobby", public)
			w.delete("lobby")
			w.wantGone("lobby", promptly)
			if err == nil {
				w.wantNothingLeft(public)
			}
		})
	}
}

func TestADeletedNamespaceWaitsForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.asleep("arena")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	if err := w.c.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.delete("arena")
	w.wantGone("arena", promptly)
	if n := w.replicas("arena"); n != 0 {
		t.Errorf("the target wants %d replicas, want 0: its namespace is going", n)
	}
}
