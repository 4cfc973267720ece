package elasticservice_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func unprobed(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].ReadinessProbe = nil }

// A container that runs may listen much later: as long as clients wait and none has got
// through, nobody is sent past the resolver.
func TestAServerWithoutAProbeIsUpOnceAClientHasGotThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0, unprobed)
	w.service("lobby", selectorless)
	w.elastic("lobby")
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.clients(0, 0, 2)
	w.wake(0, resolverToken(t), "lobby")
	server := newServer()
	w.servers("lobby", server)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	w.clients(0, 1, 1)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.clients(0, 0, 0)
	w.wantEndpoints("lobby", afterLingering, map[string]string{server.address: takesClients})
}
