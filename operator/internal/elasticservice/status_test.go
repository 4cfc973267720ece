package elasticservice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

func TestATargetThatCantBeReadSaysWhatToChange(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"not there":    {target.ErrNotFound, metav1.ConditionFalse, v1alpha1.ReasonTargetNotFound, "create it, or correct spec.scaleTargetRef"},
		"not scalable": {target.ErrNotScalable, metav1.ConditionFalse, v1alpha1.ReasonTargetNotScalable, "name an object of a kind that has one"},
		"of no namespace": {
			target.ErrClusterScoped, metav1.ConditionFalse, v1alpha1.ReasonTargetClusterScoped, "name an object of the ElasticService's namespace",
		},
		"forbidden":  {target.ErrForbidden, metav1.ConditionFalse, v1alpha1.ReasonTargetForbidden, "grant the operator get and update on that kind's scale"},
		"unreadable": {context.DeadlineExceeded, metav1.ConditionUnknown, v1alpha1.ReasonTargetUnreadable, "Dormouse tries again"},
	} {
		t.Run(name, func(t *testing.T) {
			es := lobby(v1alpha1.PhaseAsleep, at(0))
			o := with(seen(0), func(o *observed) { o.scale = scaleView{err: fmt.Errorf("the scale of lobby: %w", c.err)} })
			before := es.DeepCopy()
			setStatus(at(0), es, o, makePlan(at(0), es, o), nil)
			told := conditionEvents(before, es)
			if is := len(told) > 0 && told[0].reason == c.reason; is != (c.status == metav1.ConditionFalse) {
				t.Errorf("the events are %v", told)
			}
			for _, kind := range []string{v1alpha1.ConditionTargetFound, v1alpha1.ConditionReady} {
				is := meta.FindStatusCondition(es.Status.Conditions, kind)
				if is.Reason != c.reason || !strings.Contains(is.Message, c.says) {
					t.Errorf("%s is %s %q, want %s with %q", kind, is.Reason, is.Message, c.reason, c.says)
				}
			}
			if is := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionTargetFound); is.Status != c.status {
				t.Errorf("TargetFound is %s, want %s", is.Status, c.status)
			}
			if is := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionServerUp); is.Status != metav1.ConditionUnknown {
				t.Errorf("ServerUp is %s, want Unknown", is.Status)
			}
		})
	}
}

func TestWhenNoResolverPortIsFreeTheConditionsSaySo(t *testing.T) {
	r := &Reconciler{}
	r.Init()
	for port := int32(v1alpha1.MinResolverPort); port <= v1alpha1.MaxResolverPort; port++ {
		r.ports.learn(port, portOwner{uid: "others", name: fmt.Sprint(port), protocol: "TCP"})
	}
	es := lobby("", at(0))
	es.Status.Ports = nil
	o := seen(0)
	ob, err := r.prepare(context.Background(), at(0), es, &o)
	if err != nil || ob == nil {
		t.Fatalf("obstacle %v, error %v; want an obstacle", ob, err)
	}
	setStatus(at(0), es, o, plan{}, ob)
	is := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionReady)
	if is.Status != metav1.ConditionFalse || is.Reason != v1alpha1.ReasonPortsExhausted || !strings.Contains(is.Message, "remove ElasticServices") {
		t.Errorf("Ready is %s %s %q", is.Status, is.Reason, is.Message)
	}
	if len(es.Status.Ports) > 0 {
		t.Errorf("the status has ports %v", es.Status.Ports)
	}
}

// Where a resolver pod is replaced nothing is wrong, and no service's status says
// so, as long as another stands in and it doesn't take too long.
func TestANewResolverIsNoObstacleForAMoment(t *testing.T) {
	t.Parallel()
	inSync := func(o observed, since float64) *metav1.Condition {
		es := lobby(v1alpha1.PhaseAsleep, at(0))
		for i := range o.resolvers {
			if !o.resolvers[i].listensOn(es.Status.Ports) {
				o.resolvers[i].firstAsked = at(0)
			}
		}
		now := at(since)
		setStatus(now, es, o, makePlan(now, es, o), nil)
		return meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionEndpointsInSync)
	}
	fresh := func(o *observed) {
		o.resolvers = append(o.resolvers, o.resolvers[0])
		o.resolvers[1].uid, o.resolvers[1].podName, o.resolvers[1].listening = "new", "new", nil
	}
	before, after := inSync(seen(0), 1), inSync(with(seen(0), fresh), 1)
	if after.Status != metav1.ConditionTrue || after.Message != before.Message {
		t.Errorf("with a new resolver EndpointsInSync is %s %q, want %s %q as before", after.Status, after.Message, before.Status, before.Message)
	}
	if late := inSync(with(seen(0), fresh), 11); late.Status != metav1.ConditionFalse || !strings.Contains(late.Message, "resolver new doesn't listen yet") {
		t.Errorf("after eleven seconds EndpointsInSync is %s %q, want that the new one doesn't listen yet", late.Status, late.Message)
	}
	alone := with(seen(0), func(o *observed) { o.resolvers[0].listening = nil })
	if got := inSync(alone, 1); got.Status != metav1.ConditionFalse {
		t.Errorf("with no other resolver EndpointsInSync is %s %q, want False", got.Status, got.Message)
	}
}

// Ready says no more than is so: what keeps a service from sleeping as asked is said, and told
// once.
func TestReadyIsNotTrueWhereAServiceCannotSleepAsAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService, *observed)
		reason string
	}{
		"nothing tells whether it is idle": {func(es *v1alpha1.ElasticService, _ *observed) { es.Spec.Idle = nil }, v1alpha1.ReasonNoIdleSignal},
		"a trigger can't be read": {func(_ *v1alpha1.ElasticService, o *observed) {
			o.triggers = trigger.Reading{At: at(0), Err: errors.New("the pod says nothing")}
		}, v1alpha1.ReasonTriggerUnreadable},
		"a selector leads past the resolver": {func(es *v1alpha1.ElasticService, o *observed) {
			es.Spec.Handoff = v1alpha1.HandoffNever
			o.service.Spec.Selector = map[string]string{"app": "lobby"}
		}, v1alpha1.ReasonSelectorBypassesResolver},
		"an entry is wrong": {func(_ *v1alpha1.ElasticService, o *observed) {
			o.flaw = &obstacle{v1alpha1.ReasonPortUnknown, "spec.ports names x."}
		}, v1alpha1.ReasonPortUnknown},
	} {
		es := lobby(v1alpha1.PhaseAwake, at(-600))
		es.Spec.Handoff = v1alpha1.HandoffDirect
		es.Spec.SleepAfter = &metav1.Duration{Duration: time.Minute}
		es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: 1, Threshold: 1}}}}
		o := seen(1, upServer)
		o.triggers = trigger.Reading{At: at(0)}
		o.service.Spec.Selector = nil
		setStatus(at(0), es, o, makePlan(at(0), es, o), nil)
		if is := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionReady); is.Status != metav1.ConditionTrue {
			t.Fatalf("%s: at first Ready is %s %s %q", name, is.Status, is.Reason, is.Message)
		}
		before := es.DeepCopy()
		c.change(es, &o)
		setStatus(at(1), es, o, makePlan(at(1), es, o), nil)
		is := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionReady)
		if is.Status != metav1.ConditionFalse || is.Reason != c.reason {
			t.Errorf("%s: Ready is %s %s %q, want False, %s", name, is.Status, is.Reason, is.Message, c.reason)
		}
		if es.Status.Phase != v1alpha1.PhaseAwake {
			t.Errorf("%s: it is %s", name, es.Status.Phase)
		}
		if o.flaw == nil {
			if told := conditionEvents(before, es); len(told) != 1 || told[0].reason != c.reason {
				t.Errorf("%s: the events are %v", name, told)
			}
		}
		if told := conditionEvents(es, es); len(told) != 0 {
			t.Errorf("%s: it is told again: %v", name, told)
		}
	}
}

// What stands in the way of the private Service stops a service that never started, on which
// nobody counts. One that runs goes on, and says so.
func TestATakenNameStopsOnlyWhatNeverStarted(t *testing.T) {
	t.Parallel()
	for phase, stops := range map[v1alpha1.Phase]bool{"": true, v1alpha1.PhaseAsleep: false, v1alpha1.PhaseAwake: false} {
		r := &Reconciler{}
		r.Init()
		es := lobby(phase, at(0))
		o := seen(1)
		o.private = &corev1.Service{} // somebody else's
		ob, err := r.prepare(context.Background(), at(0), es, &o)
		if err != nil || (ob != nil) != stops || (o.flaw != nil) == stops {
			t.Errorf("in phase %q: obstacle %v, flaw %v, error %v; want that it stops: %t", phase, ob, o.flaw, err, stops)
			continue
		}
		said := ob
		if !stops {
			said = o.flaw
		}
		if said.reason != v1alpha1.ReasonNameTaken || len(es.Status.Ports) == 0 {
			t.Errorf("in phase %q: it says %v, with the ports %v", phase, said, es.Status.Ports)
		}
	}
}
