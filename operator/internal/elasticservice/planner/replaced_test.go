package planner_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// overUDP has the service's port be one of UDP.
func overUDP(es *v1alpha1.ElasticService) *v1alpha1.ElasticService {
	es.Status.Ports[0].Protocol = v1alpha1.ProtocolBedrock
	return es
}

// Nodes keep TCP connections to an endpoint that is gone. So the slices of a sleeping service
// lose a replaced resolver in the write that brings its successor, unless that could cost
// somebody something.
func TestAReplacedResolverLeavesASleepingServiceAtOnce(t *testing.T) {
	t.Parallel()
	ready := map[string]endpoints.Role{"resolver-1": endpoints.RoleReady}
	lingers := map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating, "resolver-2": endpoints.RoleReady}
	asleep := func() *v1alpha1.ElasticService { return fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)) }
	local, cluster := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster
	for name, c := range map[string]struct {
		es      *v1alpha1.ElasticService
		change  func(*planner.Observed)
		want    map[string]endpoints.Role
		requeue time.Duration
	}{
		"over TCP": {
			es: asleep(), change: func(o *planner.Observed) { o.Service.Spec.InternalTrafficPolicy = &cluster },
			want: map[string]endpoints.Role{"resolver-2": endpoints.RoleReady},
		},
		"not while its last client has just gone": {
			es: asleep(), change: func(o *planner.Observed) { o.Resolvers[0].LastActive = fixture.At(-3) },
			want: lingers, requeue: endpoints.Linger - 3*time.Second,
		},
		"not while it carries somebody": {
			es: asleep(), change: func(o *planner.Observed) { o.Resolvers[0].Sessions = 1 },
			want: lingers, requeue: endpoints.Linger,
		},
		"not while it can't be asked": {
			es: asleep(), change: func(o *planner.Observed) {
				o.Resolvers[0].Reachable, o.Resolvers[0].SilentSince = false, fixture.At(-1)
			},
			want: lingers, requeue: endpoints.Linger,
		},
		"not while no other takes clients": {
			es: asleep(), change: func(o *planner.Observed) { o.Resolvers[1].Ready = false },
			want: map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating}, requeue: endpoints.Linger,
		},
		"not where it may come back": {
			es: asleep(), change: func(o *planner.Observed) { o.Resolvers[0].Ends = false },
			want: lingers, requeue: endpoints.Linger,
		},
		"not over UDP": {es: overUDP(asleep()), want: lingers, requeue: endpoints.Linger},
		"not where nodes send clients from outside to endpoints of their own alone": {
			es: asleep(), change: func(o *planner.Observed) {
				o.Service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			},
			want: lingers, requeue: endpoints.Linger,
		},
		"nor where they do so with clients from inside": {
			es: asleep(), change: func(o *planner.Observed) { o.Service.Spec.InternalTrafficPolicy = &local },
			want: lingers, requeue: endpoints.Linger,
		},
		"not while a server starts": {
			es: fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600)), change: func(o *planner.Observed) { o.Scale.Replicas = 1 },
			want: lingers, requeue: endpoints.Linger,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seen.With(seen.Of(0), func(o *planner.Observed) {
				o.Resolvers[0].Ready, o.Resolvers[0].Ends = false, true
				o.Resolvers = append(o.Resolvers, seen.Standing("resolver-2"))
			})
			if c.change != nil {
				c.change(&o)
			}
			p := seen.Plan(fixture.T0, c.es, seen.InSlices(o, fixture.Lobby("", fixture.At(0)), ready), planner.Findings{})
			if diff := cmp.Diff(c.want, p.Roles); diff != "" {
				t.Errorf("roles (-want +got):\n%s", diff)
			}
			if got := p.RequeueAfter.Duration(); got != c.requeue {
				t.Errorf("the next look is after %s, want %s", got, c.requeue)
			}
		})
	}
}
