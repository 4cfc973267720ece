package elasticservice_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writesOfSlices passes every write of a service's slices of ours.
func writesOfSlices(service string) func(change) bool {
	return func(c change) bool {
		_, ok := c.object.(*discoveryv1.EndpointSlice)
		return ok && isOurs(c, service) && c.kind != watch.Added
	}
}

// It touches the resolvers, which all services share, so that it doesn't run in parallel.
//
// A resolver pod is replaced as its Deployment does it: the successor becomes ready and the old
// pod is told to end, which it does some time later. A service that sleeps and plays over TCP
// has its slices written once, and over UDP once more, when the old endpoint goes.
func TestAReplacedResolverCostsASleepingServiceOneWrite(t *testing.T) {
	w := newWorld(t)
	old := w.resolver("resolver-2", 4)
	w.deployment("bedrock", 0)
	w.service("bedrock", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
	w.elastic("bedrock")
	w.wantEndpoints("bedrock", promptly, resolversAre(takesClients))
	var tcp []string
	for i := range 5 {
		name := fmt.Sprintf("lobby-%d", i)
		tcp = append(tcp, name)
		w.asleep(name)
	}
	// When this one sleeps, the others have had the passes that their own writes caused.
	w.asleep("quiet")
	since := w.latest()

	w.resolver("resolver-3", 5)
	cluster.resolvers.leaves(old)
	if err := w.c.Delete(t.Context(), old.pod, client.GracePeriodSeconds(3600)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, name := range tcp {
		w.wantEndpoints(name, promptly, resolversAre(takesClients))
	}
	t.Logf("it took %s until the last of %d services had the successor", time.Since(began).Round(time.Millisecond), len(tcp))
	lingering := resolversAre(takesClients)
	lingering[old.address] = keepsClients
	w.wantEndpoints("bedrock", promptly, lingering)
	w.wantEndpoints("bedrock", afterSettling, resolversAre(takesClients))
	cluster.setReady(t, old.pod, corev1.ConditionFalse)
	if err := cluster.resolvers.remove(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	// Each service has one more pass for the pod that is gone. One that is made now has its
	// first after those.
	w.asleep("last")
	for _, name := range tcp {
		if n := w.count(since, writesOfSlices(name)); n != 1 {
			t.Errorf("the slices of %s were written %d times, want once", name, n)
		}
	}
	if n := w.count(since, writesOfSlices("bedrock")); n != 2 {
		t.Errorf("the slices of bedrock were written %d times, want twice", n)
	}
}
