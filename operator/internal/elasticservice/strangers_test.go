package elasticservice

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
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
	m := &memory{}
	left, asked := int32(0), 0
	look := func(now time.Time, es *v1alpha1.ElasticService, replicas int32, pods ...string) observed {
		o := seen(replicas)
		o.sources = served(pods...)
		m.observeStrangers(now, es, &o, func() (int32, error) { asked++; return left, nil })
		return o
	}
	asleep := lobby(v1alpha1.PhaseAsleep, at(0))
	// Its own pods are ended within that time.
	if o := look(at(10), asleep, 0, "lobby-1", "web-1"); len(o.strangers) != 0 || o.strangersNext != 20*time.Second {
		t.Errorf("after 10s %v are strangers, to be looked for again in %s; want none, in 20s", o.strangers, o.strangersNext)
	}
	// Or one after the other.
	left = 1
	if o := look(at(30), asleep, 0, "lobby-1", "web-1"); len(o.strangers) != 0 || o.strangersNext != 30*time.Second {
		t.Errorf("with pods left %v are strangers, to be looked for again in %s; want none, in 30s", o.strangers, o.strangersNext)
	}
	left = 0
	o := look(at(60), asleep, 0, "web-1")
	if ob := strangersFlaw(asleep, o); ob == nil || ob.reason != v1alpha1.ReasonSelectorMatchesOthers || !strings.Contains(ob.message, "(web-1)") {
		t.Errorf("after 30s the flaw is %v, want one that names web-1", ob)
	}
	if look(at(61), asleep, 0, "web-1"); asked != 2 {
		t.Errorf("the API server was asked %d times, want 2: what is known is not asked for", asked)
	}
	// They are remembered while the target has pods of its own, and until they are gone.
	awake := lobby(v1alpha1.PhaseAwake, at(60))
	if o := look(at(60), awake, 1, "web-1", "lobby-2"); len(o.strangers) != 1 || o.strangers[0] != "web-1" {
		t.Errorf("awake %v are strangers, want web-1", o.strangers)
	}
	if ob := strangersFlaw(awake, look(at(61), awake, 1, "lobby-2")); ob != nil {
		t.Errorf("with no stranger left the flaw is %v", ob)
	}
	// Those of the next sleep are known at once.
	again := lobby(v1alpha1.PhaseAsleep, at(100))
	look(at(130), again, 0, "web-2")
	if o := look(at(201), lobby(v1alpha1.PhaseAsleep, at(200)), 0, "web-2"); len(o.strangers) != 1 || o.strangersNext != 0 {
		t.Errorf("in the next sleep %v are strangers, want web-2", o.strangers)
	}
	m.target = refOf(again)
	m.target.Name = "other"
	if o := look(at(202), lobby(v1alpha1.PhaseAsleep, at(202)), 0, "web-2"); len(o.strangers) != 0 {
		t.Errorf("with another target %v are strangers, want none", o.strangers)
	}
}

// A Fleet at zero has Servers on which somebody plays.
func TestADrainingServerIsNoStranger(t *testing.T) {
	es := lobby(v1alpha1.PhaseAsleep, at(0))
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "lobby"}
	m, o := &memory{}, seen(0)
	o.sources = served("lobby-1")
	if m.observeStrangers(at(600), es, &o, nil); len(o.strangers) != 0 {
		t.Errorf("%v are strangers, want none", o.strangers)
	}
}
