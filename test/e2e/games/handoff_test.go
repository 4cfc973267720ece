package games

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// With handoff Never all players go through the resolvers, which fill one Server
// after the other, send nobody to one that drains, let players wait while all are
// full, and put the Fleet to sleep when the last session is over.
func TestTheResolverFillsOneServerAfterTheOther(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	const capacity, replicas, sleepAfter = 3, 2, 3 * time.Second
	g := env.Game{
		Namespace: ns, Name: "lobby", TCP: []int32{env.GameTCP}, Selectorless: true, SleepAfter: sleepAfter,
		Handoff: v1alpha1.HandoffNever, Balance: v1alpha1.BalancePacked,
		Target: &v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "lobby"},
	}
	spec := suite.Cluster.ServerSpec()
	spec.Players.Capacity = capacity
	if _, err := suite.Cluster.CreateFleet(ctx, ns, g.Name, replicas, spec); err != nil {
		t.Fatal(err)
	}
	// The first player needs all Servers to be there, and comes before it may sleep.
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "ready", ready(replicas)); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	address := suite.ClusterIP(ctx, t, g, env.GameTCP)

	// Each is reported before the next comes, so that it doesn't matter which
	// resolver takes whom.
	var all []*player.Player
	come := func(players int32) string {
		t.Helper()
		p := suite.DialTCP(ctx, t, address)
		if _, err := p.Exchange(ctx); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		server := p.Stats().Paths[0].Server
		if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKey{Namespace: ns, Name: server}, "occupied", func(s *v1alpha1.Server) bool {
			return s.Status.Players != nil && s.Status.Players.Current == players
		}); err != nil {
			t.Fatal(err)
		}
		return server
	}
	first := come(1)
	for players := int32(2); players <= capacity; players++ {
		if at := come(players); at != first {
			t.Fatalf("player %d is on %s, want %s, which is the fullest", players, at, first)
		}
	}
	if es, err := neverAsleep(ctx, g, 3*sleepAfter); err != nil {
		t.Fatalf("%v: %+v", err, es.Status)
	}
	if second := come(1); second == first {
		t.Fatalf("%s got more players than it may have", first)
	}

	// The Fleet drains the one with fewer players, and the other is full.
	suite.ScaleFleet(ctx, t, g.Key(), 1)
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "1 and 1 that drains", func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == 1 && f.Status.DrainingReplicas == 1
	}); err != nil {
		t.Fatal(err)
	}
	late := suite.DialTCP(ctx, t, address)
	answered := make(chan error, 1)
	go func() {
		_, err := late.Exchange(ctx)
		answered <- err
	}()
	if _, err := suite.Cluster.WaitFor(ctx, g.Key(), "a player waits for room", func(es *v1alpha1.ElasticService) bool {
		return es.Status.Queued == 1
	}); err != nil {
		t.Fatal(err)
	}
	leave := func(p *player.Player) {
		suite.Intact(t, "a player", p)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	leave(all[0])
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if at := late.Stats().Paths[0].Server; at != first {
		t.Errorf("who waited is on %s, want %s, where there is room now", at, first)
	}
	for _, p := range append(all[1:], late) {
		leave(p)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
}
