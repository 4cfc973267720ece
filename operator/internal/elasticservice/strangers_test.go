package elasticservice

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// served are the target's slices with pods that serve.
func served(pods ...string) []discoveryv1.EndpointSlice {
	var s discoveryv1.EndpointSlice
	for _, pod := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.244.2.9"}, TargetRef: &corev1.ObjectReference{Name: pod, UID: types.UID("uid-" + pod)},
			Conditions: discoveryv1.EndpointConditions{Serving: new(true), Terminating: new(false)},
		})
	}
	return []discoveryv1.EndpointSlice{s}
}

func TestPodsThatServeWhileTheTargetIsAtZeroAreStrangers(t *testing.T) {
	m := &state{}
	left, asked := int32(0), 0
	look := func(now time.Time, es *v1alpha1.ElasticService, replicas int32, pods ...string) planner.Observed {
		o := seen.Of(replicas)
		o.Sources = served(pods...)
		m.observeStrangers(now, es, target.Of(es), &o, func() (int32, error) { asked++; return left, nil })
		return o
	}
	asleep := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
	// Its own pods are ended within that time.
	if o := look(fixture.At(10), asleep, 0, "lobby-1", "web-1"); len(o.Strangers) != 0 || o.StrangersNext != 20*time.Second {
		t.Errorf("after 10s %v are strangers, to be looked for again in %s; want none, in 20s", o.Strangers, o.StrangersNext)
	}
	// Or one after the other.
	left = 1
	if o := look(fixture.At(30), asleep, 0, "lobby-1", "web-1"); len(o.Strangers) != 0 || o.StrangersNext != 30*time.Second {
		t.Errorf("with pods left %v are strangers, to be looked for again in %s; want none, in 30s", o.Strangers, o.StrangersNext)
	}
	left = 0
	o := look(fixture.At(60), asleep, 0, "web-1")
	if ob := planner.StrangersFlaw(asleep, o); ob == nil || ob.Reason != reasons.SelectorMatchesOthers || !strings.Contains(ob.Message, "(web-1)") {
		t.Errorf("after 30s the flaw is %v, want one that names web-1", ob)
	}
	if look(fixture.At(61), asleep, 0, "web-1"); asked != 2 {
		t.Errorf("the API server was asked %d times, want 2: what is known is not asked for", asked)
	}
	// They are remembered while the target has pods of its own, and until they are gone.
	awake := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(60))
	if o := look(fixture.At(60), awake, 1, "web-1", "lobby-2"); len(o.Strangers) != 1 || o.Strangers[0] != "web-1" {
		t.Errorf("awake %v are strangers, want web-1", o.Strangers)
	}
	if ob := planner.StrangersFlaw(awake, look(fixture.At(61), awake, 1, "lobby-2")); ob != nil {
		t.Errorf("with no stranger left the flaw is %v", ob)
	}
	// Those of the next sleep are known at once.
	again := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(100))
	look(fixture.At(130), again, 0, "web-2")
	if o := look(fixture.At(201), fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(200)), 0, "web-2"); len(o.Strangers) != 1 || o.StrangersNext != 0 {
		t.Errorf("in the next sleep %v are strangers, want web-2", o.Strangers)
	}
	m.target = target.Of(again)
	m.target.Name = "other"
	if o := look(fixture.At(202), fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(202)), 0, "web-2"); len(o.Strangers) != 0 {
		t.Errorf("with another target %v are strangers, want none", o.Strangers)
	}
}

// A Fleet at zero has Servers on which somebody plays.
func TestADrainingServerIsNoStranger(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "lobby"}
	m, o := &state{}, seen.Of(0)
	o.Sources = served("lobby-1")
	if m.observeStrangers(fixture.At(600), es, target.Of(es), &o, nil); len(o.Strangers) != 0 {
		t.Errorf("%v are strangers, want none", o.Strangers)
	}
}
