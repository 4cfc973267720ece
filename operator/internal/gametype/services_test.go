package gametype

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// A port's settings that no Server depends on make no revision, and a Fleet has none of them.
func TestWhatIsSpokenMakesNoRevision(t *testing.T) {
	gt := templated("1")
	gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 25565, Protocol: v1alpha1.ServerProtocolTCP}}
	f, err := desiredFleet(gt, plan{first: 1, number: 1})
	if err != nil {
		t.Fatal(err)
	}
	port := &gt.Spec.Template.Spec.Ports[0]
	port.Asleep, port.Readiness, port.AbortOnClose, port.Publish = &v1alpha1.Asleep{MOTD: "Zzz"}, v1alpha1.ReadinessConnect, new(true), new(true)
	if seen := observe(gt, new(desiredTemplate(gt)), f); !seen.current || seen.unlike {
		t.Errorf("with more about the port the Fleet is %+v", seen)
	}
	port.Protocol = "minecraft"
	if seen := observe(gt, new(desiredTemplate(gt)), f); !seen.current || !seen.unlike {
		t.Errorf("with what is spoken on it the Fleet is %+v, want it changed", seen)
	}
	changed, err := desiredFleet(gt, plan{first: 1, number: 1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]v1alpha1.ServerPort{{Name: "game", ContainerPort: 25565, Protocol: "minecraft"}}, changed.Spec.Template.Spec.Ports); diff != "" {
		t.Errorf("the Fleet's ports (-want +got):\n%s", diff)
	}
	if changed.Annotations[wellknown.TemplateHashAnnotation] != f.Annotations[wellknown.TemplateHashAnnotation] {
		t.Error("the hash has changed")
	}
	port.Protocol = v1alpha1.ServerProtocolUDP
	if observe(gt, new(desiredTemplate(gt)), f).current {
		t.Error("over another transport protocol it is the same revision")
	}
}

func TestANewGameTypeWarnsOfNoPortThatIsAboutToBeListenedOn(t *testing.T) {
	say := func(reason string) *v1alpha1.GameTypeStatus {
		return &v1alpha1.GameTypeStatus{Conditions: []metav1.Condition{{Type: conditions.ServiceReady, Status: metav1.ConditionFalse, Reason: reason}}}
	}
	if list := transitionEvents(&v1alpha1.GameTypeStatus{}, say(reasons.ResolverNotListening)); len(list) > 0 {
		t.Errorf("there are the events %+v", list)
	}
	if list := transitionEvents(&v1alpha1.GameTypeStatus{}, say(reasons.NameTaken)); len(list) != 1 {
		t.Errorf("a taken name has the events %+v", list)
	}
}

// The Service keeps a port of an earlier revision as long as that has Servers, or may have.
func TestARevisionWithServersKeepsItsPorts(t *testing.T) {
	gt := templated("2")
	revision := func(change func(*v1alpha1.Fleet)) v1alpha1.Fleet {
		f := v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: v1alpha1.FleetStatus{ObservedGeneration: 2}}
		f.Spec.Template, f.Spec.Replicas = desiredTemplate(templated("1")), new(int32(0))
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.Fleet)
		want   int
	}{
		"without Servers":           {func(*v1alpha1.Fleet) {}, 0},
		"with one":                  {func(f *v1alpha1.Fleet) { f.Status.Replicas = 1 }, 1},
		"with one that drains":      {func(f *v1alpha1.Fleet) { f.Status.DrainingReplicas = 1 }, 1},
		"that is to have one":       {func(f *v1alpha1.Fleet) { f.Spec.Replicas = new(int32(1)) }, 1},
		"of which nothing is known": {func(f *v1alpha1.Fleet) { f.Status.ObservedGeneration = 1 }, 1},
		"that is the current one":   {func(f *v1alpha1.Fleet) { f.Status.Replicas, f.Spec.Template = 1, desiredTemplate(gt) }, 0},
	} {
		f, got := revision(c.change), 0
		if !observe(gt, new(desiredTemplate(gt)), &f).current && mayHaveServers(&f) {
			got = 1
		}
		if got != c.want {
			t.Errorf("a revision %s: %d keep their ports, want %d", name, got, c.want)
		}
	}
}
