package games

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// A new version has its ports elsewhere, and one more. Who plays on the old one by its numbers goes on
// until the end, over TCP and UDP; new players come by the new numbers, or still by the old ones, and
// get the new version.
func TestAnUpdateOfPortsCutsNobody(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	const newTCP, newUDP = env.GameTCP + 10, env.GameUDP + 10
	g := newGameType(ctx, t, ns, 1)
	var old *v1alpha1.Server
	for _, s := range serversOf(ctx, t, g) {
		old = s
	}
	if err := suite.Cluster.WaitPodRouted(ctx, old.Status.PodIP); err != nil {
		t.Fatal(err)
	}
	setPlayers(ctx, t, old, 2)
	players := invite(ctx, t, g, 2)

	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) {
		game := &s.Template.Spec.Template.Spec.Containers[0]
		game.Args = append(game.Args, "--tcp=7010", "--udp=7011")
		s.Template.Spec.Ports[0].ContainerPort, s.Template.Spec.Ports[1].ContainerPort = newTCP, newUDP
		s.Template.Spec.Ports = append(s.Template.Spec.Ports, v1alpha1.ServerPort{Name: "voice", ContainerPort: 7020, Protocol: v1alpha1.ServerProtocolUDP})
	})
	if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(old), "drained", func(s *v1alpha1.Server) bool { return s.Spec.Drain }); err != nil {
		t.Fatal(err)
	}
	var fresh *v1alpha1.Server
	err := env.WaitUntil(ctx, "the new version takes players", func(ctx context.Context) (bool, error) {
		for _, s := range serversOf(ctx, t, g) {
			if s.UID != old.UID && s.Status.State == v1alpha1.ServerReady {
				fresh = s
			}
		}
		return fresh != nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitPodRouted(ctx, fresh.Status.PodIP); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitUnrouted(ctx, old.Status.PodIP); err != nil {
		t.Fatal(err)
	}
	ports := func() map[int32]string {
		t.Helper()
		svc := &corev1.Service{}
		if err := suite.Cluster.Client.Get(ctx, g.Key(), svc); err != nil {
			t.Fatal(err)
		}
		found := map[int32]string{}
		for _, p := range svc.Spec.Ports {
			found[p.Port] = p.Name
		}
		return found
	}
	if got := ports(); len(got) != 5 || got[env.GameUDP] != "udp" {
		t.Errorf("while somebody plays on the old version the Service has the ports %v", got)
	}
	for network, numbers := range map[string][]int32{"tcp": {newTCP, env.GameTCP}, "udp": {newUDP, env.GameUDP}} {
		for _, number := range numbers {
			stats, err := suite.PlayOnce(ctx, network, suite.ClusterIP(ctx, t, g, number))
			if err != nil {
				t.Fatalf("a new player over %s at %d: %v", network, number, err)
			}
			if len(stats.Paths) != 1 || stats.Paths[0].Server != fresh.Name {
				t.Errorf("a new player over %s at %d gets %v, want %s", network, number, stats.Paths, fresh.Name)
			}
		}
	}
	stays(ctx, t, old, 2*time.Second)
	players.leave(ctx, t)

	setPlayers(ctx, t, old, 0)
	gone(ctx, t, old)
	if err := env.WaitUntil(ctx, "the old ports are gone", func(context.Context) (bool, error) {
		got := ports()
		return len(got) == 3 && got[env.GameTCP] == "" && got[env.GameUDP] == "", nil
	}); err != nil {
		t.Fatal(err)
	}
}
