package games

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
)

// Scenario 25: the local cluster has three host ports on each of two nodes. Of
// seven Servers one waits, says why, and starts when a port is free. Players
// reach the others at the node's address, over TCP and UDP on one number. One of
// them listens on that very number itself.
func TestHostPortsAreSharedOut(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	const capacity = 6
	var servers []*v1alpha1.Server
	for i := range capacity + 1 {
		spec := suite.Cluster.ServerSpec("--udp=7000")
		spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposeHostPort}}
		if i == 0 {
			spec = suite.Cluster.ServerSpec("--tcp=$(SERVER_PORT_GAME)", "--udp=$(SERVER_PORT_GAME)")
			spec.Ports = []v1alpha1.ServerPort{{Name: "game", Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposePassthrough}}
		}
		s, err := suite.Cluster.CreateServer(ctx, ns, fmt.Sprintf("lobby-%d", i), spec)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
	}
	var running []*v1alpha1.Server
	var waiting *v1alpha1.Server
	used := map[string]string{}
	for _, s := range servers {
		s, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(s), "ready or waiting for a port", func(s *v1alpha1.Server) bool {
			return s.Status.State == v1alpha1.ServerReady || waitsForPort(s)
		})
		if err != nil {
			t.Fatal(err)
		}
		if s.Status.State != v1alpha1.ServerReady {
			if waiting != nil {
				t.Fatalf("both %s and %s wait for a port", waiting.Name, s.Name)
			}
			waiting = s
			continue
		}
		running = append(running, s)
		where := net.JoinHostPort(s.Status.Address, strconv.Itoa(int(s.Status.Ports[0].Port)))
		if other := used[where]; other != "" {
			t.Errorf("%s and %s are both at %s", other, s.Name, where)
		}
		used[where] = s.Name
	}
	if waiting == nil {
		t.Fatalf("all %d Servers run on %v, want one that waits", len(servers), used)
	}
	for where, name := range used {
		for _, network := range []string{"tcp", "udp"} {
			stats, err := suite.PlayOnce(ctx, network, where)
			if err != nil {
				t.Errorf("play on %s at %s over %s: %v", name, where, network, err)
			} else if stats.Paths[0].Server != name {
				t.Errorf("%s at %s over %s was answered by %s", name, where, network, stats.Paths[0].Server)
			}
		}
	}
	left := running[1]
	deleteServer(ctx, t, left)
	gone(ctx, t, left)
	s, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(waiting), v1alpha1.ServerReady)
	if err != nil {
		t.Fatal(err)
	}
	if s.Status.Address != left.Status.Address || s.Status.Ports[0].Port != left.Status.Ports[0].Port {
		t.Errorf("the Server that waited is at %s:%d, want the freed %s:%d", s.Status.Address, s.Status.Ports[0].Port, left.Status.Address, left.Status.Ports[0].Port)
	}
}

func waitsForPort(s *v1alpha1.Server) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
	return c != nil && c.Reason == reasons.HostPortTaken
}
