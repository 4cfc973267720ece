package gametype_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
)

func TestAGameTypeHasAServiceAndAnElasticService(t *testing.T) {
	w := newWorld(t, false)
	gt := w.create(func(gt *v1alpha1.GameType) {
		gt.Spec.Service.Annotations = map[string]string{"lb.example/kind": "fast"}
	})
	service, es := &corev1.Service{}, &v1alpha1.ElasticService{}
	w.get(game, service)
	w.get(game, es)
	want := []corev1.ServicePort{
		{Name: "game-tcp", Protocol: corev1.ProtocolTCP, Port: 7777, TargetPort: intstr.FromString("game")},
		{Name: "game-udp", Protocol: corev1.ProtocolUDP, Port: 7777, TargetPort: intstr.FromString("game-udp")},
		{Name: "query", Protocol: corev1.ProtocolUDP, Port: 7778, TargetPort: intstr.FromString("query")},
	}
	if diff := cmp.Diff(want, service.Spec.Ports); diff != "" {
		t.Errorf("the Service's ports (-want +got):\n%s", diff)
	}
	if !metav1.IsControlledBy(service, gt) || !metav1.IsControlledBy(es, gt) || len(service.Spec.Selector) > 0 ||
		service.Spec.Type != corev1.ServiceTypeClusterIP || service.Annotations["lb.example/kind"] != "fast" {
		t.Errorf("the Service is %+v %+v", service.ObjectMeta, service.Spec)
	}
	ref := v1alpha1.ScaleTargetRef{APIVersion: "dormouse.dev/v1alpha1", Kind: "GameType", Name: game}
	if es.Spec.Service != game || es.Spec.ScaleTargetRef != ref || es.Spec.SleepAfter.Duration != 0 || es.Spec.Idle != nil {
		t.Errorf("the ElasticService of a game that never sleeps is %+v", es.Spec)
	}
	w.wantCondition(conditions.ServiceReady, metav1.ConditionUnknown, reasons.NotReported, "")

	w.change(func(gt *v1alpha1.GameType) {
		gt.Spec.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Minute}, MinReplicas: new(int32(2)), Handoff: v1alpha1.HandoffNever}
		gt.Spec.Sleep.Balance, gt.Spec.Sleep.ProxyProtocol = v1alpha1.BalancePacked, &v1alpha1.ProxyProtocol{Send: true}
	})
	w.get(game, es)
	if es.Spec.SleepAfter.Duration != time.Minute || *es.Spec.MinReplicas != 2 || es.Spec.Handoff != v1alpha1.HandoffNever ||
		es.Spec.Balance != v1alpha1.BalancePacked || es.Spec.ProxyProtocol == nil || !es.Spec.ProxyProtocol.Send ||
		es.Spec.Idle == nil || !es.Spec.Idle.Players || es.Spec.Hold.MaxConnections != 1000 {
		t.Errorf("the ElasticService of a game that sleeps is %+v", es.Spec)
	}
	before := es.DeepCopy()
	es.Status.Phase = v1alpha1.PhaseFallingAsleep
	condition.SetAll(&es.Status.Conditions, es.Generation, metav1.Now(), condition.True(conditions.Ready, reasons.OK, "All is well."))
	if err := w.Admin.Status().Patch(t.Context(), es, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.wantCondition(conditions.ServiceReady, metav1.ConditionTrue, reasons.OK, "through Service duel")
	if phase := w.gameType().Status.Phase; phase != v1alpha1.PhaseFallingAsleep {
		t.Errorf("the phase is %s", phase)
	}
}

func TestAServiceKeepsWhatIsNotTheGameTypes(t *testing.T) {
	w := newWorld(t, false)
	w.create(func(gt *v1alpha1.GameType) {
		gt.Spec.Service = v1alpha1.GameServiceSpec{Type: v1alpha1.GameServiceNodePort, Annotations: map[string]string{"ours": "1", "both": "1"}}
	})
	service := &corev1.Service{}
	w.get(game, service)
	ports := map[string]int32{}
	for _, p := range service.Spec.Ports {
		ports[p.Name] = p.NodePort
	}
	before := service.DeepCopy()
	service.Annotations["theirs"] = "2"
	service.Spec.Selector = map[string]string{"app": "x"} // A hand slipped.
	if err := w.Admin.Patch(t.Context(), service, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.change(func(gt *v1alpha1.GameType) {
		gt.Spec.Service.Annotations = map[string]string{"both": "3"}
		gt.Spec.Template.Spec.Ports[1].ContainerPort = 7779
	})
	service = &corev1.Service{} // A read leaves the maps' old keys in what it fills.
	w.get(game, service)
	want := map[string]string{"both": "3", "theirs": "2", wellknown.ServiceAnnotationsAnnotation: "both"}
	if diff := cmp.Diff(want, service.Annotations); diff != "" {
		t.Errorf("the annotations (-want +got):\n%s", diff)
	}
	// The old version's Servers are there still, and so is their port.
	if len(service.Spec.Selector) > 0 || len(service.Spec.Ports) != 4 || service.Spec.Ports[2].Port != 7779 || service.Spec.Ports[3].Port != 7778 {
		t.Errorf("the Service is %+v", service.Spec)
	}
	for _, p := range service.Spec.Ports {
		if was, ok := ports[p.Name]; p.NodePort == 0 || ok && p.NodePort != was {
			t.Errorf("the node port of %s was %d and is %d", p.Name, ports[p.Name], p.NodePort)
		}
	}
	w.change(func(gt *v1alpha1.GameType) { gt.Spec.Service.Type = v1alpha1.GameServiceClusterIP })
	service = &corev1.Service{}
	w.get(game, service)
	if service.Spec.Type != corev1.ServiceTypeClusterIP || service.Spec.Ports[0].NodePort != 0 {
		t.Errorf("the Service is %+v", service.Spec)
	}
}

func TestAnothersServiceIsLeftAlone(t *testing.T) {
	tests := map[string]client.Object{
		"Service": &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "x"}, Ports: []corev1.ServicePort{{Port: 80}}}},
		"ElasticService": &v1alpha1.ElasticService{Spec: v1alpha1.ElasticServiceSpec{
			Service: "web", ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		}},
	}
	for kind, other := range tests {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, false)
			other.SetNamespace(w.Namespace)
			other.SetName(game)
			if err := w.Admin.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			w.create(nil)
			w.wantCondition(conditions.ServiceReady, metav1.ConditionFalse, reasons.NameTaken, "There is a "+kind+" named duel that isn't this GameType's")
			now, ok := other.DeepCopyObject().(client.Object)
			if !ok {
				t.Fatal("it is no object")
			}
			w.get(game, now)
			if now.GetResourceVersion() != other.GetResourceVersion() {
				t.Errorf("it was changed to %+v", now)
			}
			if _, isService := other.(*corev1.Service); isService && w.there(&v1alpha1.ElasticService{}) {
				t.Error("an ElasticService was made for somebody else's Service")
			}
			if w.of("game:1") == nil {
				t.Error("there is no Fleet")
			}
			if n := w.Emitted("NameTaken"); n != 1 {
				t.Errorf("%d events tell of it, want 1", n)
			}
			if err := w.Admin.Delete(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			w.settled()
			if !w.there(&corev1.Service{}) || !w.there(&v1alpha1.ElasticService{}) {
				t.Error("the GameType's own aren't made when the other's is gone")
			}
		})
	}
}

func TestAGameWithoutPortsHasNoService(t *testing.T) {
	w := newWorld(t, false)
	w.create(func(gt *v1alpha1.GameType) { gt.Spec.Template.Spec.Ports = nil })
	w.wantCondition(conditions.ServiceReady, metav1.ConditionFalse, reasons.NoPorts, "template.spec.ports")
	if w.there(&corev1.Service{}) || w.there(&v1alpha1.ElasticService{}) {
		t.Error("there is a Service, or an ElasticService")
	}
}

// What is said of a port changes the ElasticService at once, and no Server: the same Fleet learns
// what is spoken, for Servers that it makes from then on.
func TestWhatIsSaidOfAPortIsNoUpdate(t *testing.T) {
	w := newWorld(t, true)
	w.create(func(gt *v1alpha1.GameType) {
		gt.Spec.Template.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 25565, Protocol: v1alpha1.ServerProtocolTCP}}
	})
	before := w.all()
	var servers v1alpha1.ServerList
	list := func() map[string]string {
		if err := w.Admin.List(t.Context(), &servers, client.InNamespace(w.Namespace)); err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, s := range servers.Items {
			versions[s.Name] = s.ResourceVersion
		}
		return versions
	}
	had := list()
	w.change(func(gt *v1alpha1.GameType) {
		p := &gt.Spec.Template.Spec.Ports[0]
		p.Protocol, p.Asleep, p.Readiness = "minecraft", &v1alpha1.Asleep{MOTD: "Zzz"}, v1alpha1.ReadinessConnect
		gt.Spec.Front = &v1alpha1.Front{Service: "mc", Hosts: []v1alpha1.FrontHost{"play.example.com"}}
		gt.Spec.Wake = &v1alpha1.Wake{Players: &v1alpha1.WakePlayers{Allow: []v1alpha1.Player{"Hazel"}}}
		gt.Spec.Hold = &v1alpha1.Hold{MaxConnections: 7}
	})
	es := &v1alpha1.ElasticService{}
	w.get(game, es)
	if len(es.Spec.Ports) != 1 || es.Spec.Ports[0].Protocol != v1alpha1.ProtocolMinecraft || es.Spec.Ports[0].Asleep.MOTD != "Zzz" ||
		es.Spec.Ports[0].Readiness != v1alpha1.ReadinessConnect || es.Spec.Front == nil || es.Spec.Wake == nil || es.Spec.Hold.MaxConnections != 7 {
		t.Errorf("the ElasticService is %+v", es.Spec)
	}
	after := w.all()
	if len(before) != 1 || len(after) != 1 || before[0].UID != after[0].UID {
		t.Fatalf("there were %d Fleets and are %d, want the same one", len(before), len(after))
	}
	want := []v1alpha1.ServerPort{{Name: "game", ContainerPort: 25565, Protocol: "minecraft", Expose: v1alpha1.ExposeNone}}
	if diff := cmp.Diff(want, after[0].Spec.Template.Spec.Ports); diff != "" {
		t.Errorf("the Fleet's ports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(had, list()); diff != "" {
		t.Errorf("the Servers changed (-was +is):\n%s", diff)
	}
}
