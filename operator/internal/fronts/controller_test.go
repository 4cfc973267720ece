package fronts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
)

func TestAFrontsResolversAreReadyOnceTheyListen(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	ports := []v1alpha1.PortStatus{{Name: "mc", Protocol: v1alpha1.ProtocolTCP, ResolverPort: 12345}}
	pod := func(uid string, listens, ready bool, sessions int32) endpoints.Resolver {
		return endpoints.Resolver{UID: uid, Addresses: []string{"10.0.0." + uid}, Ready: ready, Reachable: true, Listening: map[int32]bool{12345: listens}, Sessions: sessions}
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "mc", UID: "svc"},
		Spec: corev1.ServiceSpec{
			Ports:      []corev1.ServicePort{{Name: "mc", Port: 25565, Protocol: corev1.ProtocolTCP}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
	o := planner.Observed{Service: svc, Resolvers: []endpoints.Resolver{pod("1", true, true, 0), pod("2", false, true, 0), pod("3", true, false, 0)}}
	roles, _ := endpoints.StandIns(now, ports, o.Resolvers, true, true)
	if diff := cmp.Diff(map[string]endpoints.Role{"1": endpoints.RoleReady}, roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	slices := frontSlices(o.Service, o.Resolvers, ports, roles)
	if len(slices) != 1 || len(slices[0].Endpoints) != 1 || *slices[0].Ports[0].Port != 12345 || !metav1.IsControlledBy(slices[0], svc) {
		t.Fatalf("slices are %+v", slices)
	}
	// One that ends keeps its endpoint for as long as it carries somebody.
	o.Slices = append(o.Slices, *slices[0])
	for sessions, want := range map[int32]map[string]endpoints.Role{3: {"1": endpoints.RoleTerminating}, 0: {}} {
		o.Resolvers = []endpoints.Resolver{pod("1", true, false, sessions)}
		o.Resolvers[0].Role, o.Resolvers[0].SteppedDown = endpoints.RoleTerminating, now.Add(-time.Minute)
		o.Slices[0].Endpoints[0].Conditions.Ready = new(false)
		roles, _ = endpoints.StandIns(now, ports, o.Resolvers, true, true)
		if diff := cmp.Diff(want, roles); diff != "" {
			t.Errorf("with %d sessions (-want +got):\n%s", sessions, diff)
		}
	}
	if got := frontSlices(o.Service, o.Resolvers, nil, roles); got != nil {
		t.Errorf("a front that nobody shares has slices %+v", got)
	}
}
