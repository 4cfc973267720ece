package hosting

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// At a front a server's address is its name there, so its players' number is the front's too, as Port says,
// whatever other numbers its own Service has on the nodes.
func TestAServerAtAFrontHasTheFrontsNumber(t *testing.T) {
	front := func(ports ...corev1.ServicePort) *corev1.Service {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "front"}}
		svc.Spec.Type, svc.Spec.Ports = corev1.ServiceTypeLoadBalancer, ports
		return svc
	}
	both := front(corev1.ServicePort{Name: "query", Port: 27015}, corev1.ServicePort{Name: "minecraft", Port: 25565})
	for name, c := range map[string]struct {
		front *corev1.Service
		spec  v1alpha1.Front
		kind  corev1.ServiceType
		want  map[string]int32
	}{
		"no other number":          {both, v1alpha1.Front{Port: "minecraft"}, corev1.ServiceTypeClusterIP, map[string]int32{"primary": 25565, "game": 25565}},
		"a console's number":       {both, v1alpha1.Front{Port: "minecraft"}, corev1.ServiceTypeNodePort, map[string]int32{"primary": 25565, "game": 25565, "rcon": 30002}},
		"a front of one port":      {front(corev1.ServicePort{Port: 25566}), v1alpha1.Front{}, corev1.ServiceTypeNodePort, map[string]int32{"primary": 25566, "game": 25566, "rcon": 30002}},
		"another port's players":   {both, v1alpha1.Front{Port: "minecraft", TargetPort: "lobby"}, corev1.ServiceTypeClusterIP, map[string]int32{"primary": 25565, "lobby": 25565}},
		"a front that isn't there": {nil, v1alpha1.Front{}, corev1.ServiceTypeNodePort, map[string]int32{"rcon": 30002}},
		"a front without the port": {both, v1alpha1.Front{Port: "tls"}, corev1.ServiceTypeNodePort, map[string]int32{"rcon": 30002}},
		"another namespace's":      {both, v1alpha1.Front{Namespace: "elsewhere"}, corev1.ServiceTypeNodePort, map[string]int32{"rcon": 30002}},
	} {
		t.Run(name, func(t *testing.T) {
			h := cluster(t, interceptor.Funcs{})
			s := server(t, h)
			es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: s.Name}}
			c.spec.Service, c.spec.Hosts = "front", []v1alpha1.FrontHost{"server-5.play.example.com"}
			es.Spec.Front = &c.spec
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: s.Name}}
			svc.Spec.Type, svc.Spec.Ports = c.kind, []corev1.ServicePort{{Name: "game", Port: 1, NodePort: 30001}, {Name: "rcon", Port: 2, NodePort: 30002}}
			if c.front != nil {
				if err := h.Client.Create(t.Context(), c.front.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Client.Create(t.Context(), es); err != nil {
				t.Fatal(err)
			}
			if err := h.Client.Create(t.Context(), svc); err != nil {
				t.Fatal(err)
			}
			got, err := h.Get(t.Context(), 5)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Ports); diff != "" || got.Address != "server-5.play.example.com" {
				t.Errorf("its ports at %s (-want +got):\n%s", got.Address, diff)
			}
			list, _, err := h.List(t.Context(), Filter{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Server{got}, list); diff != "" {
				t.Errorf("the list has it otherwise (-one +list):\n%s", diff)
			}
		})
	}
}
