package elasticservice_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// kubernetesSlice is one that a controller of Kubernetes wrote for a Service.
func (w *world) kubernetesSlice(service, name, manager string, servers ...gameServer) *discoveryv1.EndpointSlice {
	w.t.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("game"), Port: new(int32(25565))}},
	}
	for _, server := range servers {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{server.address}})
	}
	w.create(s)
	return s
}

// Dormouse's own advice for handoff Never is to remove the selector.
func TestWhatKubernetesLeavesOfASelectorIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := newServer()
	w.deployment("lobby", 1)
	svc := w.service("lobby")
	w.elastic("lobby", handoffNever, sleepAfter(3*time.Second))
	w.servers("lobby", server)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.SelectorBypassesResolver))
	// Clients went past the resolver all that time.
	w.stays("lobby", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	left := w.kubernetesSlice("lobby", "lobby-x7c2p", "endpointslice-controller.k8s.io", server)
	others := w.kubernetesSlice("other", "other-x7c2p", "endpointslice-controller.k8s.io", server)
	since := w.latest()
	w.edit(svc, func() { svc.Spec.Selector = nil })
	fixture.Eventually(t, promptly, "the slice is gone", func(ctx context.Context) error {
		if err := w.read(ctx, left.Name, &discoveryv1.EndpointSlice{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %w", err)
		}
		return nil
	})
	// Who came by it keeps the server, and nobody else gets there past the resolver.
	w.wantEndpoints("lobby", promptly, and(resolversAre(takesClients), map[string]string{server.address: keepsClients}))
	w.must("the server in a slice of ours", promptly, since, func(c change) bool {
		s, ok := c.object.(*discoveryv1.EndpointSlice)
		return ok && isOurs(c, "lobby") && endpoints([]discoveryv1.EndpointSlice{*s})[server.address] == keepsClients
	})
	w.want("lobby", promptly, ready)
	w.stays("lobby", 2*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeProxy))
	w.wantEvent("LeftoversDeleted", "deleted lobby-x7c2p")
	if err := w.read(t.Context(), others.Name, others); err != nil {
		t.Error(err)
	}
}

// What is copied from Endpoints comes again when it is deleted: a person must delete those.
func TestEndpointsThatLeadPastTheResolverAreSaidAndKeepItAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := newServer()
	players := countPlayers(t, server)
	players.is(0)
	mirrored := w.kubernetesSlice("lobby", "lobby-m", "endpointslicemirroring-controller.k8s.io", server)
	w.deployment("lobby", 1)
	w.service("lobby", selectorless)
	w.elastic("lobby", sleepAfter(time.Second), byPlayers(1))
	w.servers("lobby", server)
	const reason = reasons.EndpointsBypassResolver
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), hasCondition(conditions.Ready, metav1.ConditionFalse, reason),
		message(conditions.Ready, "kubectl delete endpoints lobby -n "+w.ns), hasCondition(conditions.IdleSignal, metav1.ConditionFalse, reason))
	w.wantWarning(reason, "The resolver doesn't see all clients")
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	if err := w.c.Delete(t.Context(), mirrored); err != nil {
		t.Fatal(err)
	}
	w.want("lobby", afterLooking, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), ready)
}
