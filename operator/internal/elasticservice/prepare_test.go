package elasticservice

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func takeAllPorts(r *Reconciler) {
	for port := int32(wellknown.MinResolverPort); port <= wellknown.MaxResolverPort; port++ {
		r.Ports.Learn(port, resolverports.Owner{UID: "others", Name: fmt.Sprint(port), Protocol: "TCP"})
	}
}

func TestWhenNoResolverPortIsFreeTheConditionsSaySo(t *testing.T) {
	r := &Reconciler{}
	r.Init()
	takeAllPorts(r)
	es := fixture.Lobby("", fixture.At(0))
	es.Status.Ports = nil
	o := seen.Of(0)
	ob, err := r.keepPortsAndService(context.Background(), &pass{es: es, state: r.stateOf(es), now: fixture.At(0), observed: o})
	if err != nil || ob == nil {
		t.Fatalf("obstacle %v, error %v; want an obstacle", ob, err)
	}
	status.Set(fixture.At(0), es, o, planner.Findings{Obstacle: ob}, planner.Plan{})
	is := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready)
	if is.Status != metav1.ConditionFalse || is.Reason != reasons.PortsExhausted || !strings.Contains(is.Message, "remove ElasticServices") {
		t.Errorf("Ready is %s %s %q", is.Status, is.Reason, is.Message)
	}
	if len(es.Status.Ports) > 0 {
		t.Errorf("the status has ports %v", es.Status.Ports)
	}
}

// What stands in the way of the private Service stops a service that never started, on which
// nobody counts. One that runs goes on, and says so.
func TestATakenNameStopsOnlyWhatNeverStarted(t *testing.T) {
	t.Parallel()
	for phase, stops := range map[v1alpha1.Phase]bool{"": true, v1alpha1.PhaseAsleep: false, v1alpha1.PhaseAwake: false} {
		r := &Reconciler{}
		r.Init()
		es := fixture.Lobby(phase, fixture.At(0))
		o := seen.Of(1)
		o.Private = &corev1.Service{} // somebody else's
		p := &pass{es: es, state: r.stateOf(es), now: fixture.At(0), observed: o}
		ob, err := r.keepPortsAndService(context.Background(), p)
		if err != nil || (ob != nil) != stops || (p.found.Flaw != nil) == stops {
			t.Errorf("in phase %q: obstacle %v, flaw %v, error %v; want that it stops: %t", phase, ob, p.found.Flaw, err, stops)
			continue
		}
		said := ob
		if !stops {
			said = p.found.Flaw
		}
		if said.Reason != reasons.NameTaken || len(es.Status.Ports) == 0 {
			t.Errorf("in phase %q: it says %v, with the ports %v", phase, said, es.Status.Ports)
		}
	}
}

// What was found as it is wanted isn't compared again in each pass, until something of it changes.
func TestWhatIsPreparedIsComparedAgainAfterAChange(t *testing.T) {
	t.Parallel()
	wanted := func() (es *v1alpha1.ElasticService, o planner.Observed) {
		es, o = fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0)), seen.Of(0)
		es.Generation, o.Service.ResourceVersion = 1, "1"
		o.PrivateName, es.Status.PrivateService = "lobby-dormouse", "lobby-dormouse"
		o.Private = endpoints.PrivateService(es, o.PrivateName, o.Service, o.Service.Spec.Selector)
		o.Private.ResourceVersion = "2"
		return es, o
	}
	keep := func(t *testing.T, r *Reconciler, es *v1alpha1.ElasticService, o planner.Observed) *obstacle.Obstacle {
		t.Helper()
		ob, err := r.keepPortsAndService(t.Context(), &pass{es: es, state: r.stateOf(es), now: fixture.At(0), observed: o})
		if err != nil {
			t.Fatal(err)
		}
		return ob
	}
	for name, c := range map[string]struct {
		change func(es *v1alpha1.ElasticService, o *planner.Observed)
		again  bool
	}{
		"nothing has changed":           {func(*v1alpha1.ElasticService, *planner.Observed) {}, false},
		"the target has been scaled":    {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Scale.Replicas = 5 }, false},
		"the spec has changed":          {func(es *v1alpha1.ElasticService, _ *planner.Observed) { es.Generation = 2 }, true},
		"the Service has changed":       {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Service.ResourceVersion = "3" }, true},
		"the private one has changed":   {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Private.ResourceVersion = "3" }, true},
		"the selector has changed":      {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Scale.Selector = "a=b" }, true},
		"somebody has edited the ports": {func(es *v1alpha1.ElasticService, _ *planner.Observed) { es.Status.Ports = nil }, true},
		"somebody has edited its name":  {func(es *v1alpha1.ElasticService, _ *planner.Observed) { es.Status.PrivateService = "" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Reconciler{}
			r.Init()
			es, o := wanted()
			if ob := keep(t, r, es, o); ob != nil || r.stateOf(es).prepared == 0 {
				t.Fatalf("obstacle %v, and that all is as wanted is remembered as %d", ob, r.stateOf(es).prepared)
			}
			ports := es.Status.Ports
			es, o = wanted()
			es.Status.Ports = ports
			c.change(es, &o)
			// What is compared again finds that its port is another's by now, and none is left.
			for _, p := range ports {
				r.Ports.Free(fixture.At(0), p.ResolverPort, es.UID)
			}
			takeAllPorts(r)
			if ob := keep(t, r, es, o); (ob != nil) != c.again {
				t.Errorf("obstacle %v; want that it is compared again: %t", ob, c.again)
			}
		})
	}
}
