package elasticservice_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestDirectWithoutATriggerNeverSleepsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.awake("lobby", 1)
	es := w.want("lobby", promptly, ready)
	w.edit(es, func() { sleepAfter(time.Second)(es) })
	w.want("lobby", promptly, hasCondition(conditions.IdleSignal, metav1.ConditionFalse, reasons.NoIdleSignal),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.NoIdleSignal))
	w.stays("lobby", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))

	w.scaleLobby(0)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))

	w.servers("lobby")
	w.scaleLobby(2)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	if n := w.replicas("lobby"); n != 2 {
		t.Errorf("the target wants %d replicas, want the 2 that a person set", n)
	}
}

func TestHandoffNeverSleepsByTheSessionsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("arena", 1)
	w.service("arena", selectorless)
	w.clients(1, 1, 0)
	w.elastic("arena", handoffNever, sleepAfter(time.Second))
	w.servers("arena", newServer())
	w.want("arena", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy),
		hasCondition(conditions.IdleSignal, metav1.ConditionTrue, reasons.OK),
		hasCondition(conditions.DirectGated, metav1.ConditionTrue, reasons.NotNeeded))
	w.wantEndpoints("arena", promptly, resolversAre(takesClients))
	shown := w.latest()
	w.stays("arena", 3*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.clients(1, 0, 0)
	w.want("arena", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.must("the target at 0", promptly, shown, toReplicas("arena", 0))
	w.servers("arena")
	w.wantEndpoints("arena", promptly, resolversAre(takesClients))
	if n := w.count(shown, func(c change) bool { return isOurs(c, "arena") }); n > 0 {
		t.Errorf("the slices were written %d times, want none: resolvers take all clients all the time", n)
	}
}

// Who plays when Direct becomes Never went past the resolvers, of which none has a client.
func TestAServiceIsIdleNoSoonerThanItsHandoffBecameNever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const idle = 3 * time.Second
	w.deployment("arena", 1)
	w.service("arena", selectorless)
	w.elastic("arena", sleepAfter(idle))
	w.servers("arena", newServer())
	es := w.want("arena", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.NoIdleSignal))
	w.stays("arena", afterCopies, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	changed := time.Now()
	w.edit(es, func() { es.Spec.Handoff = v1alpha1.HandoffNever })
	es = w.want("arena", afterSettling, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if after := es.Status.LastSleepTime.Sub(changed); after < idle {
		t.Errorf("it slept %s after the change, want %s at least", after, idle)
	}
}

// With handoff Never the resolvers take all clients, whatever becomes of the servers
// and whichever nodes they are on.
func TestHandoffNeverKeepsTheResolversInFront(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("arena", 2)
	w.service("arena", selectorless, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	})
	w.elastic("arena", handoffNever, func(es *v1alpha1.ElasticService) { es.Spec.Balance = v1alpha1.BalancePacked })
	one, two := newServer(), newServer()
	w.servers("arena", one, two)
	w.want("arena", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy),
		hasCondition(conditions.TrafficPolicyUnsupported, metav1.ConditionFalse, reasons.OK))
	w.wantEndpoints("arena", promptly, resolversAre(takesClients))
	two.serving, two.terminating = false, true
	w.servers("arena", one, two)
	one.serving = false
	w.servers("arena", one)
	w.want("arena", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	one.serving = true
	w.servers("arena", one)
	w.want("arena", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.wantEndpoints("arena", promptly, resolversAre(takesClients))

	// There and back: whoever has clients keeps them.
	w.clients(0, 1, 0)
	es := w.want("arena", promptly, ready)
	w.edit(es, func() { es.Spec.Handoff, es.Spec.Balance = v1alpha1.HandoffDirect, "" })
	w.wantEndpoints("arena", promptly, and(resolversAre(keepsClients), map[string]string{one.address: takesClients}))
	w.want("arena", promptly, hasCondition(conditions.TrafficPolicyUnsupported, metav1.ConditionTrue, reasons.LocalTrafficPolicy))
	es = w.want("arena", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.edit(es, func() { es.Spec.Handoff = v1alpha1.HandoffNever })
	w.wantEndpoints("arena", promptly, and(resolversAre(takesClients), map[string]string{one.address: keepsClients}))
}

func TestHandoffNeverWithASelectorSaysWhyItDoesNotSleep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 1)
	service := w.service("lobby")
	w.elastic("lobby", handoffNever, sleepAfter(time.Second))
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.SelectorBypassesResolver),
		hasCondition(conditions.IdleSignal, metav1.ConditionFalse, reasons.SelectorBypassesResolver))
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.edit(service, func() { service.Spec.Selector = nil })
	w.want("lobby", promptly, ready)
	w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
}

func TestAServiceWithoutASelectorGetsItsServersFromDormouse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 2)
	w.service("lobby", selectorless)
	w.elastic("lobby")
	one, two := newServer(), newServer()
	one.serving, two.serving = false, false
	w.servers("lobby", one, two)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	// A server that has never been up is not in it.
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))

	one.serving = true
	w.servers("lobby", one, two)
	w.wantEndpoints("lobby", promptly, and(resolversAre(keepsClients), map[string]string{one.address: takesClients}))
	two.serving = true
	w.servers("lobby", one, two)
	w.wantEndpoints("lobby", promptly, and(resolversAre(keepsClients), map[string]string{one.address: takesClients, two.address: takesClients}))
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))

	// A blip of readiness, and a pod that is being deleted, cut nobody off.
	one.serving, two.terminating, two.serving = false, true, false
	w.servers("lobby", one, two)
	w.wantEndpoints("lobby", promptly, and(resolversAre(keepsClients), map[string]string{one.address: keepsClients, two.address: keepsClients}))
	// With none up for five seconds the resolvers step in.
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, and(resolversAre(takesClients), map[string]string{one.address: keepsClients, two.address: keepsClients}))

	one.serving = true
	w.servers("lobby", one)
	w.wantEndpoints("lobby", promptly, and(resolversAre(keepsClients), map[string]string{one.address: takesClients}))
	w.wantEndpoints("lobby", afterLingering, map[string]string{one.address: takesClients})
}
