package games

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// A Server's host port ends nobody's session. The network plugin deletes a node's
// entries of all UDP clients who send to a number when a Pod starts that has it as a
// host port, whatever the address, so the operator picks none that a Service has. It
// fills a node with Servers, and so runs by itself.
func TestAHostPortEndsNobodysSession(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	// The local cluster's host ports are 7900 to 7902.
	const clashing = 7901
	g := env.Game{Namespace: ns, Name: "lobby", UDP: []int32{clashing}, Selectorless: true, Probe: true}
	suite.Asleep(ctx, t, g)
	resolvers, err := suite.Cluster.ResolverAddrs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Players come in by the first node.
	address := suite.ClusterIP(ctx, t, g, clashing)
	held := suite.DialUDP(ctx, t, address)
	if _, err := held.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	if err := suite.WaitDirect(ctx, g, resolvers); err != nil {
		t.Fatal(err)
	}
	direct := suite.DialUDP(ctx, t, address)
	playing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	players := map[string]*player.Player{"the player who was held": held, "the one who came later": direct}
	for _, p := range players {
		go func() { ended <- p.Play(playing, 20*time.Millisecond) }()
	}
	for i := range 2 {
		spec := suite.Cluster.ServerSpec("--udp=7000")
		spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort}}
		spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-1"}
		s, err := suite.Cluster.CreateServer(ctx, ns, fmt.Sprintf("exposed-%d", i), spec)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerReady); err != nil {
			t.Fatal(err)
		}
		// The next test needs all host ports.
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), suite.PlayTimeout)
			defer cancel()
			deleteServer(ctx, t, s)
			gone(ctx, t, s)
		})
		if port := s.Status.Ports[0].Port; port == clashing {
			t.Errorf("Server %s got host port %d, which is the UDP port of a Service", s.Name, port)
		}
	}
	stop()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
	for who, p := range players {
		drained, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := p.Drain(drained); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		cancel()
		suite.Intact(t, who, p)
	}
}
