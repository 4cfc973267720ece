package gametype

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func templated(cpu string) *v1alpha1.GameType {
	gt := gameTypeOf(1)
	gt.Spec.Template.Metadata.Labels = map[string]string{"mode": "duel"}
	gt.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "game", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}
	return gt
}

func TestTheLabelReachesServersAndPods(t *testing.T) {
	gt := templated("1")
	f, err := desiredFleet(gt, 2, 7)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"mode": "duel", v1alpha1.GameTypeLabel: "duel"}
	if diff := cmp.Diff(want, f.Spec.Template.Metadata.Labels); diff != "" {
		t.Errorf("the Servers' labels (-want +got):\n%s", diff)
	}
	if f.Spec.Template.Spec.Template.Labels[v1alpha1.GameTypeLabel] != "duel" || f.Labels[v1alpha1.GameTypeLabel] != "duel" {
		t.Errorf("the Pods' labels are %v, the Fleet's %v", f.Spec.Template.Spec.Template.Labels, f.Labels)
	}
	if len(gt.Spec.Template.Metadata.Labels) != 1 {
		t.Error("the GameType itself was changed")
	}
}

// A template that means the same is the same revision, however it is written.
func TestAFleetIsFoundByWhatItsTemplateMeans(t *testing.T) {
	f, err := desiredFleet(templated("1"), 2, 7)
	if err != nil {
		t.Fatal(err)
	}
	same, other := templated("1000m"), templated("2")
	same.Spec.Template.Metadata.Annotations = map[string]string{}
	if !observe(same, f).current {
		t.Error("1000m isn't taken for 1")
	}
	if observe(other, f).current {
		t.Error("2 is taken for 1")
	}
}

func TestAFleetsNameFitsAndChangesWithCollisions(t *testing.T) {
	gt := templated("1")
	gt.Name = strings.Repeat("a", 39)
	names := map[string]bool{}
	for collisions := range int32(4) {
		gt.Status.CollisionCount = &collisions
		f, err := desiredFleet(gt, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Name) > 50 || len(validation.IsDNS1123Label(f.Name)) > 0 {
			t.Errorf("%s is no good name for a Fleet", f.Name)
		}
		names[f.Name] = true
	}
	if len(names) != 4 {
		t.Errorf("the names are %v", names)
	}
}

func TestAServiceHasThePortsWhoseNumbersAreKnown(t *testing.T) {
	gt := templated("1")
	gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{
		{Name: "tcp", ContainerPort: 1},
		{Name: "udp", ContainerPort: 2, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort},
		{Name: "both", ContainerPort: 3, Protocol: v1alpha1.ServerProtocolTCPUDP},
		{Name: "node", Expose: v1alpha1.ExposePassthrough},
	}
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: protocol}
	}
	want := []corev1.ServicePort{
		port("tcp", 1, corev1.ProtocolTCP), port("udp", 2, corev1.ProtocolUDP), port("both-tcp", 3, corev1.ProtocolTCP), port("both-udp", 3, corev1.ProtocolUDP),
	}
	if diff := cmp.Diff(want, servicePorts(gt)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnElasticServiceFollowsSleep(t *testing.T) {
	gt := gameTypeOf(1)
	es := &v1alpha1.ElasticService{}
	shapeElasticService(gt, es)
	if es.Spec.SleepAfter.Duration != 0 || es.Spec.Idle != nil {
		t.Errorf("a game that never sleeps has %+v", es.Spec)
	}
	trigger := v1alpha1.Trigger{Type: v1alpha1.TriggerHTTP}
	gt.Spec.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Hour}, Players: new(false), Triggers: []v1alpha1.Trigger{trigger}}
	shapeElasticService(gt, es)
	if es.Spec.SleepAfter.Duration != time.Hour || es.Spec.Idle == nil || es.Spec.Idle.Players || len(es.Spec.Idle.Triggers) != 1 {
		t.Errorf("one that sleeps by a trigger has %+v", es.Spec)
	}
	gt.Spec.Sleep = &v1alpha1.SleepSpec{}
	shapeElasticService(gt, es)
	if es.Spec.Idle == nil || !es.Spec.Idle.Players || len(es.Spec.Idle.Triggers) != 0 {
		t.Errorf("one that sleeps has %+v", es.Spec)
	}
}

// Neither is in a GameType.
func TestAnElasticServiceKeepsItsProtocolsAndItsFront(t *testing.T) {
	es := &v1alpha1.ElasticService{}
	es.Spec.Ports = []v1alpha1.PortSpec{{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}}
	es.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"play.example.com"}}
	want := es.Spec.DeepCopy()
	shapeElasticService(gameTypeOf(1), es)
	if diff := cmp.Diff(want.Ports, es.Spec.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Front, es.Spec.Front); diff != "" {
		t.Errorf("front (-want +got):\n%s", diff)
	}
}
