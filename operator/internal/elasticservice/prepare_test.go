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
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func TestWhenNoResolverPortIsFreeTheConditionsSaySo(t *testing.T) {
	r := &Reconciler{}
	r.Init()
	for port := int32(wellknown.MinResolverPort); port <= wellknown.MaxResolverPort; port++ {
		r.Ports.Learn(port, resolverports.Owner{UID: "others", Name: fmt.Sprint(port), Protocol: "TCP"})
	}
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
