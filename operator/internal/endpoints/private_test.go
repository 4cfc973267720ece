package endpoints

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestThePrivateServiceOpensNothingToTheOutside(t *testing.T) {
	svc := fixture.Service()
	svc.Annotations = map[string]string{"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}
	svc.Labels = map[string]string{"external-dns": "yes"}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.LoadBalancerIP = "203.0.113.7"
	svc.Spec.ExternalIPs = []string{"203.0.113.8"}
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.Ports[0].NodePort = 30777
	svc.Spec.Ports[0].TargetPort = intstr.FromString("game-port")
	es := fixture.Lobby("", fixture.T0)

	got := PrivateService(es, "lobby-dormouse", svc, svc.Spec.Selector)
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "lobby-dormouse", Namespace: "games",
			Labels:          map[string]string{wellknown.PrivateServiceLabel: "lobby", "app.kubernetes.io/managed-by": "dormouse"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(es, v1alpha1.GroupVersion.WithKind("ElasticService"))},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "None", PublishNotReadyAddresses: true,
			Selector: map[string]string{"app": "lobby"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "game", Protocol: corev1.ProtocolTCP, Port: 7777, TargetPort: intstr.FromString("game-port")}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("private Service (-want +got):\n%s", diff)
	}
}

func TestThePrivateServicesNameFitsAndIsTheServicesOwn(t *testing.T) {
	long := strings.Repeat("a", 62)
	x, y := PrivateServiceName(long+"x"), PrivateServiceName(long+"y")
	if len(x) > 63 || len(y) > 63 || x == y {
		t.Errorf("names %q and %q: want two different ones of at most 63 characters", x, y)
	}
}

func TestSelectorlessServicesFindPodsByTheTargetsScale(t *testing.T) {
	svc := fixture.Service()
	svc.Spec.Selector = nil
	got, ob := PodSelector(svc, "app=lobby,tier=game")
	if ob != nil || cmp.Diff(map[string]string{"app": "lobby", "tier": "game"}, got) != "" {
		t.Errorf("selector = %v, %v", got, ob)
	}
	for _, bad := range []string{"", "app in (a,b)", "app!=x"} {
		if _, ob := PodSelector(svc, bad); ob == nil || ob.Reason != reasons.NoTargetSelector {
			t.Errorf("selector %q: obstacle = %v, want %s", bad, ob, reasons.NoTargetSelector)
		}
	}
}
