package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/playerlist"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

func TestATargetThatCantBeReadSaysWhatToChange(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"not there":    {target.ErrNotFound, metav1.ConditionFalse, reasons.TargetNotFound, "create it, or correct spec.scaleTargetRef"},
		"not scalable": {target.ErrNotScalable, metav1.ConditionFalse, reasons.TargetNotScalable, "name an object of a kind that has one"},
		"of no namespace": {
			target.ErrClusterScoped, metav1.ConditionFalse, reasons.TargetClusterScoped, "name an object of the ElasticService's namespace",
		},
		"forbidden":  {target.ErrForbidden, metav1.ConditionFalse, reasons.TargetForbidden, "grant the operator get and update on that kind's scale"},
		"unreadable": {context.DeadlineExceeded, metav1.ConditionUnknown, reasons.TargetUnreadable, "Dormouse tries again"},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
			o := seen.With(seen.Of(0), func(o *planner.Observed) { o.Scale = planner.Scale{Err: fmt.Errorf("the scale of lobby: %w", c.err)} })
			before := es.DeepCopy()
			Set(fixture.At(0), es, o, planner.Findings{}, seen.Plan(fixture.At(0), es, o, planner.Findings{}))
			emitted := conditionEvents(before, es)
			if is := len(emitted) > 0 && emitted[0].Reason == c.reason; is != (c.status == metav1.ConditionFalse) {
				t.Errorf("the events are %v", emitted)
			}
			for _, kind := range []string{conditions.TargetFound, conditions.Ready} {
				is := meta.FindStatusCondition(es.Status.Conditions, kind)
				if is.Reason != c.reason || !strings.Contains(is.Message, c.says) {
					t.Errorf("%s is %s %q, want %s with %q", kind, is.Reason, is.Message, c.reason, c.says)
				}
			}
			if is := meta.FindStatusCondition(es.Status.Conditions, conditions.TargetFound); is.Status != c.status {
				t.Errorf("TargetFound is %s, want %s", is.Status, c.status)
			}
			if is := meta.FindStatusCondition(es.Status.Conditions, conditions.ServerUp); is.Status != metav1.ConditionUnknown {
				t.Errorf("ServerUp is %s, want Unknown", is.Status)
			}
		})
	}
}

// Thousands of services that sleep have equal conditions, and the cache has them once. The spec says what
// their targets are.
func TestWhatIsWellNamesNobody(t *testing.T) {
	t.Parallel()
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
	es.Name, es.Spec.ScaleTargetRef.Name = "the-service", "the-target"
	o := seen.Of(0)
	o.Scale = planner.Scale{Readiness: v1alpha1.PodReadinessProbe}
	Set(fixture.At(0), es, o, planner.Findings{}, seen.Plan(fixture.At(0), es, o, planner.Findings{}))
	for _, c := range es.Status.Conditions {
		if c.Status == metav1.ConditionTrue && (strings.Contains(c.Message, es.Name) || strings.Contains(c.Message, es.Spec.ScaleTargetRef.Name)) {
			t.Errorf("%s says %q", c.Type, c.Message)
		}
	}
	if is := meta.FindStatusCondition(es.Status.Conditions, conditions.TargetFound); is.Status != metav1.ConditionTrue {
		t.Errorf("TargetFound is %+v", is)
	}
}

// Where a resolver pod is replaced nothing is wrong, and no service's status says
// so, as long as another stands in and it doesn't take too long.
func TestANewResolverIsNoObstacleForAMoment(t *testing.T) {
	t.Parallel()
	inSync := func(o planner.Observed, since float64) *metav1.Condition {
		es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
		for i := range o.Resolvers {
			if !o.Resolvers[i].ListensOn(es.Status.Ports) {
				o.Resolvers[i].FirstAsked = fixture.At(0)
			}
		}
		now := fixture.At(since)
		Set(now, es, o, planner.Findings{}, seen.Plan(now, es, o, planner.Findings{}))
		return meta.FindStatusCondition(es.Status.Conditions, conditions.EndpointsInSync)
	}
	fresh := func(o *planner.Observed) {
		o.Resolvers = append(o.Resolvers, o.Resolvers[0])
		o.Resolvers[1].UID, o.Resolvers[1].PodName, o.Resolvers[1].Listening = "new", "new", nil
	}
	before, after := inSync(seen.Of(0), 1), inSync(seen.With(seen.Of(0), fresh), 1)
	if after.Status != metav1.ConditionTrue || after.Message != before.Message {
		t.Errorf("with a new resolver EndpointsInSync is %s %q, want %s %q as before", after.Status, after.Message, before.Status, before.Message)
	}
	if late := inSync(seen.With(seen.Of(0), fresh), 11); late.Status != metav1.ConditionFalse || !strings.Contains(late.Message, "resolver new doesn't listen yet") {
		t.Errorf("after eleven seconds EndpointsInSync is %s %q, want that the new one doesn't listen yet", late.Status, late.Message)
	}
	alone := seen.With(seen.Of(0), func(o *planner.Observed) { o.Resolvers[0].Listening = nil })
	if got := inSync(alone, 1); got.Status != metav1.ConditionFalse {
		t.Errorf("with no other resolver EndpointsInSync is %s %q, want False", got.Status, got.Message)
	}
}

// A resolver that is ready and that the operator can't reach keeps services awake. Which one it is
// can be read.
func TestASilentResolverIsNamedWhileItKeepsAServiceAwake(t *testing.T) {
	t.Parallel()
	es := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-600))
	o := seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
		o.SleepBegun = &time.Time{}
		lost := seen.Standing("resolver-2")
		lost.Reachable, lost.SilentSince, lost.Err = false, fixture.At(-301), errors.New("timeout")
		o.Resolvers = append(o.Resolvers, lost)
	})
	Set(fixture.T0, es, o, planner.Findings{}, seen.Plan(fixture.T0, es, o, planner.Findings{}))
	is := meta.FindStatusCondition(es.Status.Conditions, conditions.EndpointsInSync)
	if es.Status.Phase != v1alpha1.PhaseAwake || is.Status != metav1.ConditionFalse || !strings.Contains(is.Message, "resolver resolver-2 doesn't answer (timeout)") {
		t.Errorf("%s, and EndpointsInSync is %s %q", es.Status.Phase, is.Status, is.Message)
	}
}

// Ready says no more than is so: what keeps a service from sleeping as asked is said, and told
// once.
func TestReadyIsNotTrueWhereAServiceCannotSleepAsAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService, *planner.Observed)
		flaw   *obstacle.Obstacle
		reason string
	}{
		"nothing tells whether it is idle": {func(es *v1alpha1.ElasticService, _ *planner.Observed) { es.Spec.Idle = nil }, nil, reasons.NoIdleSignal},
		"a trigger can't be read": {func(_ *v1alpha1.ElasticService, o *planner.Observed) {
			o.Triggers = trigger.Reading{At: fixture.At(0), Err: errors.New("the pod says nothing")}
		}, nil, reasons.TriggerUnreadable},
		"a selector leads past the resolver": {func(es *v1alpha1.ElasticService, o *planner.Observed) {
			es.Spec.Handoff = v1alpha1.HandoffNever
			o.Service.Spec.Selector = map[string]string{"app": "lobby"}
		}, nil, reasons.SelectorBypassesResolver},
		"an entry is wrong": {func(*v1alpha1.ElasticService, *planner.Observed) {}, obstacle.New(reasons.PortUnknown, "%s", "spec.ports names x."), reasons.PortUnknown},
	} {
		es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600))
		es.Spec.Handoff = v1alpha1.HandoffDirect
		es.Spec.SleepAfter = &metav1.Duration{Duration: time.Minute}
		es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: 1, Threshold: 1}}}}
		o := seen.Of(1, seen.UpServer)
		o.Triggers = trigger.Reading{At: fixture.At(0)}
		o.Service.Spec.Selector = nil
		Set(fixture.At(0), es, o, planner.Findings{}, seen.Plan(fixture.At(0), es, o, planner.Findings{}))
		if is := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready); is.Status != metav1.ConditionTrue {
			t.Fatalf("%s: at first Ready is %s %s %q", name, is.Status, is.Reason, is.Message)
		}
		before := es.DeepCopy()
		c.change(es, &o)
		f := planner.Findings{Flaw: c.flaw}
		Set(fixture.At(1), es, o, f, seen.Plan(fixture.At(1), es, o, f))
		is := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready)
		if is.Status != metav1.ConditionFalse || is.Reason != c.reason {
			t.Errorf("%s: Ready is %s %s %q, want False, %s", name, is.Status, is.Reason, is.Message, c.reason)
		}
		if es.Status.Phase != v1alpha1.PhaseAwake {
			t.Errorf("%s: it is %s", name, es.Status.Phase)
		}
		if c.flaw == nil {
			if emitted := conditionEvents(before, es); len(emitted) != 1 || emitted[0].Reason != c.reason {
				t.Errorf("%s: the events are %v", name, emitted)
			}
		}
		if emitted := conditionEvents(es, es); len(emitted) != 0 {
			t.Errorf("%s: it is told again: %v", name, emitted)
		}
	}
}

func TestASelectorBeforeAFleetIsSaidToCutPlayers(t *testing.T) {
	fleet := v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "a"}
	deployment := v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}
	none, some := &corev1.Service{}, &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "a"}}}
	for name, c := range map[string]struct {
		target  v1alpha1.ScaleTargetRef
		service *corev1.Service
		want    metav1.ConditionStatus
	}{
		"a Fleet with a selector":      {fleet, some, metav1.ConditionFalse},
		"a Fleet without a selector":   {fleet, none, metav1.ConditionTrue},
		"a Fleet without a Service":    {fleet, nil, metav1.ConditionUnknown},
		"a Deployment with a selector": {deployment, some, metav1.ConditionTrue},
	} {
		es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-time.Minute.Seconds()))
		es.Spec.ScaleTargetRef = c.target
		if got := drainSafe(es, planner.Observed{Service: c.service}); got.Status != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got.Status, got.Message, c.want)
		}
	}
}

func TestPlayersHoldOnWhileTheirListIsGone(t *testing.T) {
	t.Parallel()
	es := &v1alpha1.ElasticService{}
	o := planner.Observed{}
	condition := func() metav1.Condition { return wakePlayersKnown(es, o) }
	es.Status.WakePlayers = &v1alpha1.WakePlayersStatus{}
	if keepLists(es, o); es.Status.WakePlayers != nil || condition().Reason != reasons.NotNeeded {
		t.Errorf("without a list there are %+v, %+v", es.Status.WakePlayers, condition())
	}
	es.Spec.Wake = &v1alpha1.Wake{Players: &v1alpha1.WakePlayers{AllowFrom: &v1alpha1.PlayerList{ConfigMap: "players", Key: "whitelist.json"}}}
	o.Lists.Obstacle = obstacle.New(reasons.ConfigMapNotFound, "%s", "There is no ConfigMap players.")
	if keepLists(es, o); es.Status.WakePlayers == nil || len(es.Status.WakePlayers.Allow) != 0 {
		t.Errorf("of a list that never was there is %+v", es.Status.WakePlayers)
	}
	o.Lists = playerlist.Lists{Allow: &[]string{"x"}}
	if keepLists(es, o); len(es.Status.WakePlayers.Allow) != 1 || condition().Status != metav1.ConditionTrue {
		t.Errorf("of a list there is %+v, %+v", es.Status.WakePlayers, condition())
	}
	o.Lists = playerlist.Lists{Obstacle: obstacle.New(reasons.PlayerListInvalid, "%s", "It is no list.")}
	keepLists(es, o)
	if c := condition(); len(es.Status.WakePlayers.Allow) != 1 || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "hold on") {
		t.Errorf("of a list that can't be read there is %+v, %+v", es.Status.WakePlayers, c)
	}
	// The other list goes by what it is.
	es.Spec.Wake.Players.DenyFrom = &v1alpha1.PlayerList{ConfigMap: "players", Key: "banned-players.json"}
	o.Lists.Deny = &[]string{"y"}
	keepLists(es, o)
	if got := es.Status.WakePlayers; !slices.Equal(got.Allow, []string{"x"}) || !slices.Equal(got.Deny, []string{"y"}) {
		t.Errorf("of one list that can't be read and one that can there is %+v", got)
	}
	es.Spec.Wake.Players.AllowFrom = nil
	if keepLists(es, o); es.Status.WakePlayers.Allow != nil {
		t.Errorf("of a list that the spec doesn't name any more there is %+v", es.Status.WakePlayers.Allow)
	}
}

func TestASleepByHandKeepsHowManyReplicasThereWere(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600))
	es.Status.Replicas, es.Status.ReplicasBeforeSleep = 3, 1
	o := seen.Of(0)
	Set(fixture.T0, es, o, planner.Findings{}, seen.Plan(fixture.T0, es, o, planner.Findings{}))
	if es.Status.Phase != v1alpha1.PhaseAsleep || target.Wanted(es).FromZero != 3 {
		t.Errorf("a wake of %s asks for %d replicas, want 3 as before", es.Status.Phase, target.Wanted(es).FromZero)
	}
	// It stays so.
	Set(fixture.At(1), es, o, planner.Findings{}, seen.Plan(fixture.At(1), es, o, planner.Findings{}))
	if target.Wanted(es).FromZero != 3 {
		t.Errorf("later a wake asks for %d", target.Wanted(es).FromZero)
	}
}

func TestATargetThatIsUpIsNotAsleep(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1))
	es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: "lobby"}}
	o := seen.Of(1)
	Set(fixture.T0, es, o, planner.Findings{}, seen.Plan(fixture.T0, es, o, planner.Findings{}))
	if es.Status.AsleepTarget != nil {
		t.Errorf("%v is asleep", es.Status.AsleepTarget)
	}
}
