package failover

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// Scenario 9: resolvers come and go, from one to three and back, while clients
// are held and relayed. Every new connection is served, and those that a
// resolver carries when it is told to end, once or twice, play to their own end.
func TestResolversComeAndGoUnderPlayers(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), suite.TestTimeout)
		defer cancel()
		if err := suite.Cluster.ScaleProgram(ctx, env.Resolver, 2); err != nil {
			t.Error(err)
		}
		waitPods(ctx, t, env.Resolver, 2)
	})
	// Through the resolver for good, so that each session has one to lose.
	relayed := env.Game{
		Namespace: ns, Name: "relayed", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true,
		Selectorless: true, Handoff: v1alpha1.HandoffNever, Replicas: 1,
	}
	// It boots for so long that clients are held while resolvers come and go.
	held := env.Game{Namespace: ns, Name: "held", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true, BootDelay: 8 * time.Second}
	if err := suite.Cluster.Create(ctx, relayed); err != nil {
		t.Fatal(err)
	}
	later := held
	later.Name = "later"
	suite.Asleep(ctx, t, held)
	suite.Asleep(ctx, t, later)

	scaleResolvers(ctx, t, relayed, 1)
	load := suite.NewLoad(suite.ClusterIP(ctx, t, relayed, 7000))
	stop := load.Start(ctx)
	defer stop()
	sessions := join(ctx, t, relayed, "before")
	for i := range 10 {
		sessions = append(sessions,
			play(ctx, fmt.Sprintf("held tcp %d", i), suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, held, 7000))),
			play(ctx, fmt.Sprintf("held udp %d", i), suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, held, 7001))))
	}
	waitPhase(ctx, t, held, v1alpha1.PhaseWaking)
	scaleResolvers(ctx, t, relayed, 3)
	carriers := map[string]bool{}
	exchange := func(list []*session) {
		for _, s := range list {
			s.exchange(ctx, t)
			carriers[s.player.Stats().Paths[0].PeerIP().String()] = true
		}
	}
	exchange(sessions)
	// Nodes learn of the new ones up to a second later. An earlier one may still
	// end.
	for crowd := 1; len(carriers) < 3; crowd++ {
		if crowd > 10 {
			t.Fatalf("after %d crowds the sessions are carried by %v, want all three resolvers", crowd, carriers)
		}
		among := join(ctx, t, relayed, fmt.Sprintf("crowd %d", crowd))
		exchange(among)
		sessions = append(sessions, among...)
	}
	waitListed(ctx, t, later, 3)

	// Down to one, with clients held at all three.
	var waiting []*session
	for i := range 30 {
		waiting = append(waiting, play(ctx, fmt.Sprintf("held later %d", i), suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, later, 7000))))
	}
	waitPhase(ctx, t, later, v1alpha1.PhaseWaking)
	scaleResolvers(ctx, t, relayed, 1)
	for _, s := range waiting {
		s.exchange(ctx, t)
	}
	ending := len(podsOfResolver(ctx, t))
	if ending < 3 {
		t.Errorf("%d resolver pods are there while they carry players, want all three", ending)
	}
	terminateAgain(ctx, t)
	for _, s := range append(sessions, waiting...) {
		s.exchange(ctx, t)
	}
	stop()
	for _, s := range append(sessions, waiting...) {
		s.leave(ctx, t)
	}
	load.Check(t)
	// And nobody holds them any longer than that.
	err := env.WaitUntil(ctx, "the resolvers that carry nobody have ended", func(ctx context.Context) (bool, error) {
		return len(podsOfResolver(ctx, t)) == 1, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// terminateAgain asks the resolvers that are about to end to do so once more, as
// somebody does who finds that they take long.
func terminateAgain(ctx context.Context, t *testing.T) {
	t.Helper()
	asked := 0
	for _, pod := range podsOfResolver(ctx, t) {
		if pod.DeletionTimestamp == nil {
			continue
		}
		container, err := suite.Cluster.Container(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := container.Terminate(); err != nil {
			t.Fatal(err)
		}
		asked++
	}
	if asked == 0 {
		t.Error("no resolver is about to end")
	}
}

// join makes players of both transports play.
func join(ctx context.Context, t *testing.T, g env.Game, when string) []*session {
	t.Helper()
	var sessions []*session
	for i := range 10 {
		sessions = append(sessions,
			play(ctx, fmt.Sprintf("tcp %d, %s", i, when), suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000))),
			play(ctx, fmt.Sprintf("udp %d, %s", i, when), suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, g, 7001))))
	}
	return sessions
}

// scaleResolvers sets how many resolvers there are, and waits until a game's new
// clients go to so many.
func scaleResolvers(ctx context.Context, t *testing.T, g env.Game, n int32) {
	t.Helper()
	if err := suite.Cluster.ScaleProgram(ctx, env.Resolver, n); err != nil {
		t.Fatal(err)
	}
	waitPods(ctx, t, env.Resolver, int(n))
	waitListed(ctx, t, g, int(n))
}

// podsOfResolver are all of them, those too that are about to end.
func podsOfResolver(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(env.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": env.Resolver})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
