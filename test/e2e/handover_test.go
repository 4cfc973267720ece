package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// Scenario 5: fifty players of each transport wake a game, go on through the
// resolver, and lose nothing when new clients are handed to the server.
func TestHandoverLosesNothing(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Echo: []int32{7002},
		Type: corev1.ServiceTypeNodePort, Probe: true,
		// So long that all players are there before the game is.
		BootDelay: time.Second,
	}
	suite.Asleep(ctx, t, g)
	resolvers, err := suite.Cluster.ResolverAddrs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var players []*player.Player
	overTCP, overUDP := suite.ClusterIP(ctx, t, g, 7000), suite.NodePort(ctx, t, g, 7001, 1)
	for range 50 {
		players = append(players, suite.DialTCP(ctx, t, overTCP), suite.DialUDP(ctx, t, overUDP))
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	errs := make(chan error, len(players)+1)
	for _, p := range players {
		group.Go(func() { errs <- p.Play(playing, 20*time.Millisecond) })
	}
	// And bytes without frames, whose every one must come back: they are held,
	// relayed, and more than fit any buffer on the way.
	group.Go(func() { errs <- player.Echo(ctx, suite.Cluster.DialPlayer, suite.ClusterIP(ctx, t, g, 7002), 16<<20) })

	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	if err := suite.WaitDirect(ctx, g, resolvers); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		for network, address := range map[string]string{"tcp": suite.ClusterIP(ctx, t, g, 7000), "udp": suite.ClusterIP(ctx, t, g, 7001)} {
			p, err := suite.PlayOnce(ctx, network, address)
			if err != nil {
				t.Fatal(err)
			}
			if p.Paths[0].Through(resolvers...) {
				t.Errorf("new %s client %d went through the resolver after the handover", network, i)
			}
		}
	}
	// Those who were there before play on through all of that, and for longer
	// than a resolver's endpoint stays without clients.
	if err := stillRelayed(ctx, g, 12*time.Second); err != nil {
		t.Error(err)
	}
	stop()
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	for i, p := range players {
		if err := p.Drain(ctx); err != nil {
			t.Errorf("player %d: %v", i, err)
		}
		suite.Intact(t, fmt.Sprintf("player %d", i), p)
		if stats := p.Stats(); !stats.Paths[0].Through(resolvers...) {
			t.Errorf("player %d was there before the handover and came from %s, want a resolver", i, stats.Paths[0].Peer)
		}
	}
	var sent, bytes uint64
	for _, p := range players {
		sent += p.Stats().Sent
		bytes += p.Stats().BytesSent
	}
	t.Logf("%d sessions sent %d messages of %d bytes across the handover, and 16 MiB without frames; none lost", len(players), sent, bytes)

	// Once they have left, the resolver's endpoints go.
	for _, p := range players {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stillRelayed watches the Service's slices for a while, in which the resolver
// must keep an endpoint that serves and gets no new clients.
func stillRelayed(ctx context.Context, g env.Game, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for ctx.Err() == nil {
		kept, ready, err := suite.Cluster.ResolverEndpoints(ctx, g.Key())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if kept == 0 || ready > 0 {
			return fmt.Errorf("the Service has %d resolver endpoints and %d of them ready, while clients are relayed: want some, and none ready", kept, ready)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

// Scenario 6: a client that comes while the service falls asleep is served, and
// the target never goes to zero.
func TestAClientCancelsASleepThatHasBegun(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := env.Game{
				Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true,
				Replicas: 1, Trigger: true, SleepAfter: 3 * time.Second,
			}
			if err := suite.Cluster.Create(ctx, g); err != nil {
				t.Fatal(err)
			}
			if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseFallingAsleep, v1alpha1.ModeProxy); err != nil {
				t.Fatal(err)
			}
			woken := watchReplicas(ctx, t, g)
			port := map[string]int32{"tcp": 7000, "udp": 7001}[network]
			dial := map[string]func(context.Context, *testing.T, string) *player.Player{"tcp": suite.DialTCP, "udp": suite.DialUDP}[network]
			p := dial(ctx, t, suite.ClusterIP(ctx, t, g, port))
			playing, stop := context.WithCancel(ctx)
			defer stop()
			played := make(chan error, 1)
			go func() { played <- p.Play(playing, 20*time.Millisecond) }()
			if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
				t.Fatal(err)
			}
			// It must last: longer than the sleep would have taken.
			hold, cancel := context.WithTimeout(ctx, 8*time.Second)
			defer cancel()
			if es, err := suite.Cluster.WaitPhase(hold, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err == nil {
				t.Errorf("the service fell asleep under its player: %+v", es.Status)
			}
			stop()
			if err := <-played; err != nil {
				t.Error(err)
			}
			if err := p.Drain(ctx); err != nil {
				t.Error(err)
			}
			suite.Intact(t, "the player", p)
			if lowest := woken(); lowest != 1 {
				t.Errorf("the Deployment went down to %d replicas, want it to stay at 1", lowest)
			}
			suite.OneServer(ctx, t, ns)
			// And once nobody plays, it sleeps after all: over UDP only after two
			// minutes of silence, if the player came through the resolver.
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if network == "udp" {
				return
			}
			if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
				t.Error(err)
			}
		})
	}
}

// watchReplicas watches a game's Deployment, and gives a function that ends the
// watch and tells the lowest number of replicas that was asked for.
func watchReplicas(ctx context.Context, t *testing.T, g env.Game) func() int32 {
	t.Helper()
	w, err := suite.Cluster.Client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(g.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", g.Name)})
	if err != nil {
		t.Fatal(err)
	}
	lowest := make(chan int32, 1)
	go func() {
		low := int32(1 << 30)
		for event := range w.ResultChan() {
			if d, ok := event.Object.(*appsv1.Deployment); ok {
				low = min(low, ptr.Deref(d.Spec.Replicas, 1))
			}
		}
		lowest <- low
	}()
	return func() int32 {
		w.Stop()
		return <-lowest
	}
}

// With handoff Never the resolver's own sessions tell when nobody plays: no
// probe, no trigger, not a line of code in the game.
func TestHandoffNeverSleepsBySessionsAlone(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{7000},
		Selectorless: true, Handoff: v1alpha1.HandoffNever, SleepAfter: 2 * time.Second,
	}
	suite.Asleep(ctx, t, g)
	p := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := p.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	suite.Intact(t, "the player", p)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, 7000)); err != nil {
		t.Errorf("the second wake: %v", err)
	}
}

// And every client goes through the resolver for good.
func TestHandoffNeverRelaysEveryClient(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001},
		Selectorless: true, Handoff: v1alpha1.HandoffNever,
	}
	suite.Asleep(ctx, t, g)
	resolvers, err := suite.Cluster.ResolverAddrs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, g, 7001))
	if _, err := first.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		for network, port := range map[string]int32{"tcp": 7000, "udp": 7001} {
			stats, err := suite.PlayOnce(ctx, network, suite.ClusterIP(ctx, t, g, port))
			if err != nil {
				t.Fatal(err)
			}
			if !stats.Paths[0].Through(resolvers...) {
				t.Errorf("a client came from %s, want a resolver: handoff is Never", stats.Paths[0].Peer)
			}
		}
	}
	suite.Intact(t, "the player who was held", first)
}

// A Service without a selector gets its servers' endpoints from Dormouse.
func TestASelectorlessServiceHandsOverToo(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Selectorless: true, Probe: true}
	suite.Asleep(ctx, t, g)
	resolvers, err := suite.Cluster.ResolverAddrs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, g, 7001))
	if _, err := p.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	if err := suite.WaitDirect(ctx, g, resolvers); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := p.Exchange(ctx); err != nil {
			t.Fatal(err)
		}
	}
	suite.Intact(t, "the player who was held", p)
}

// A service that a person scales to zero is stood in for all the same, and one
// whose ElasticService is deleted asleep is left awake and working.
func TestScaledToZeroByHandAndLeftAwakeOnDeletion(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true, Replicas: 1}
	if err := suite.Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	es := suite.PutToSleep(ctx, t, g)
	if _, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, 7000)); err != nil {
		t.Fatal(err)
	}
	// A wake call that is under way while the player is served would raise the service again.
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	suite.Scale(ctx, t, g, 0)
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Client.Delete(ctx, es); err != nil {
		t.Fatal(err)
	}
	err := env.WaitUntil(ctx, "the ElasticService is gone", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, g.Key(), &v1alpha1.ElasticService{})
		return client.IgnoreNotFound(err) == nil && err != nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if kept, _, err := suite.Cluster.ResolverEndpoints(ctx, g.Key()); err != nil || kept != 0 {
		t.Errorf("%d resolver endpoints are left (%v), want none", kept, err)
	}
	stats, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, 7000))
	if err != nil {
		t.Fatal(err)
	}
	if err := stats.Intact(); err != nil {
		t.Error(err)
	}
}
