package elasticservice_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// These tests touch the resolvers, which all services share, so that they don't
// run in parallel.

func TestResolverPodsComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.asleep("lobby")
	third := w.resolver("resolver-2", 4)
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))

	// A pod that is not ready gets nobody new, and keeps whom it carries.
	w.clients(2, 1, 0)
	cluster.setReady(t, third.pod, corev1.ConditionFalse)
	two := resolversAre(takesClients)
	two[third.address] = keepsClients
	w.wantEndpoints("lobby", promptly, two)
	cluster.setReady(t, third.pod, corev1.ConditionTrue)
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))

	if err := cluster.resolvers.remove(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	w.want("lobby", promptly, ready)
}

// Whoever was on a resolver that ends comes back by another one.
func TestAServiceOutlastsTheResolverOfItsLastClients(t *testing.T) {
	w := newWorld(t)
	const idle = 6 * time.Second
	ends := w.resolver("resolver-2", 4)
	w.deployment("arena", 1)
	w.service("arena", selectorless)
	w.clients(2, 1, 0)
	w.elastic("arena", handoffNever, sleepAfter(idle))
	w.servers("arena", newServer())
	w.want("arena", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.stays("arena", afterCopies, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.clients(2, 2, 0)
	w.want("arena", promptly, func(es *v1alpha1.ElasticService) error {
		if es.Status.Sessions != 2 {
			return fmt.Errorf("%d sessions, want 2", es.Status.Sessions)
		}
		return nil
	})
	ended := time.Now()
	if err := cluster.resolvers.remove(t.Context(), ends); err != nil {
		t.Fatal(err)
	}
	es := w.want("arena", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if after := es.Status.LastSleepTime.Sub(ended); after < idle-2*time.Second {
		t.Errorf("it slept %s after its last clients' resolver ended, want about %s", after, idle)
	}
}

func TestAResolverThatDoesNotAnswerKeepsServicesAwake(t *testing.T) {
	w := newWorld(t)
	w.deployment("lobby", 1)
	w.service("lobby", selectorless)
	w.elastic("lobby", handoffNever, sleepAfter(time.Second))
	w.clients(0, 1, 0)
	w.servers("lobby", newServer())
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))

	r := cluster.resolvers.members[1]
	if err := r.silence(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.answer(cluster.cleanup); err != nil {
			t.Error(err)
		}
	})
	w.clients(0, 0, 0)
	w.want("lobby", promptly, hasCondition(conditions.EndpointsInSync, metav1.ConditionFalse, reasons.ResolverNotListening))
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	// It may only be the operator that doesn't reach it: it keeps its endpoint.
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	if err := r.answer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.want("lobby", afterSettling, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
}

func TestWithoutAResolverNothingFallsAsleepAndTheConditionSaysSo(t *testing.T) {
	w := newWorld(t)
	for _, r := range cluster.resolvers.members {
		cluster.setReady(t, r.pod, corev1.ConditionFalse)
		t.Cleanup(func() { cluster.setReady(t, r.pod, corev1.ConditionTrue) })
	}
	w.deployment("lobby", 1)
	w.service("lobby", selectorless)
	w.elastic("lobby", handoffNever, sleepAfter(time.Second))
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.NoResolver))
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	for _, r := range cluster.resolvers.members {
		cluster.setReady(t, r.pod, corev1.ConditionTrue)
	}
	w.want("lobby", afterSettling, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
}
