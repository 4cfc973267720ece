package gameserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// Without a port on the node a Server is reached at its Pod alone, so that no two are told to be
// at one address and port.
func TestAnAddressIsWhereThePortsAre(t *testing.T) {
	s := full()
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
	o := observed{pod: podbuilder.Build(s, sidecar, []int32{7000, 7001, 0}, true), node: node}
	o.pod.Status.PodIP = "10.1.2.3"
	if setPod(s, o); s.Status.Address != "192.0.2.1" || len(s.Status.Ports) != 2 {
		t.Errorf("exposed ports are at %s: %+v", s.Status.Address, s.Status.Ports)
	}
	s.Spec.Ports = s.Spec.Ports[2:]
	o.pod = podbuilder.Build(s, sidecar, []int32{0}, true)
	o.pod.Status.PodIP = "10.1.2.3"
	want := []v1alpha1.ServerPortStatus{{Name: "inner", Port: 80}}
	if setPod(s, o); s.Status.Address != "10.1.2.3" || !cmp.Equal(s.Status.Ports, want) {
		t.Errorf("inner ports are at %s: %+v", s.Status.Address, s.Status.Ports)
	}
}
