package games

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// behindAService makes a Fleet behind a Service without a selector, which an
// ElasticService keeps.
func behindAService(ctx context.Context, t *testing.T, namespace string, replicas int32, g env.Game) env.Game {
	t.Helper()
	g.Namespace, g.Name, g.Selectorless = namespace, "lobby", true
	g.TCP, g.UDP = []int32{env.GameTCP}, []int32{env.GameUDP}
	g.Target = &v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: g.Name}
	if _, err := suite.Cluster.CreateFleet(ctx, namespace, g.Name, replicas, suite.Cluster.ServerSpec()); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "ready", ready(replicas)); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	waitEndpoints(ctx, t, g, "all servers", func(ready, _ map[string]bool) bool { return len(ready) == int(replicas) })
	return g
}

// waitEndpoints waits until the Service's endpoints that are Servers are as
// wanted: those that get new players, and those that keep what they have.
func waitEndpoints(ctx context.Context, t *testing.T, g env.Game, what string, done func(ready, kept map[string]bool) bool) {
	t.Helper()
	err := env.WaitUntil(ctx, "the Service's endpoints are "+what, func(ctx context.Context) (bool, error) {
		var list discoveryv1.EndpointSliceList
		err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingLabels{
			discoveryv1.LabelServiceName: g.Name, discoveryv1.LabelManagedBy: wellknown.ManagedBy,
		})
		ready, kept := map[string]bool{}, map[string]bool{}
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if e.TargetRef == nil || e.TargetRef.Namespace != g.Namespace {
					continue
				}
				if ptr.Deref(e.Conditions.Ready, true) {
					ready[e.TargetRef.Name] = true
				} else if ptr.Deref(e.Conditions.Serving, true) {
					kept[e.TargetRef.Name] = true
				}
			}
		}
		return err == nil && done(ready, kept), err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// party is players who play until they are told to stop.
type party struct {
	players []*player.Player
	stop    func() []error
}

// invite lets n players play over each of TCP and UDP.
func invite(ctx context.Context, t *testing.T, g env.Game, n int) *party {
	t.Helper()
	return inviteEvery(ctx, t, g, n, 50*time.Millisecond)
}

// inviteEvery is invite with players who say something at an interval.
func inviteEvery(ctx context.Context, t *testing.T, g env.Game, n int, interval time.Duration) *party {
	t.Helper()
	p := &party{}
	ctx, stop := context.WithCancel(ctx)
	errs := make(chan error, 2*n)
	var group sync.WaitGroup
	tcp, udp := suite.ClusterIP(ctx, t, g, env.GameTCP), suite.ClusterIP(ctx, t, g, env.GameUDP)
	for range n {
		for _, one := range []*player.Player{suite.DialTCP(ctx, t, tcp), suite.DialUDP(ctx, t, udp)} {
			p.players = append(p.players, one)
			group.Go(func() { errs <- one.Play(ctx, interval) })
		}
	}
	p.stop = sync.OnceValue(func() []error {
		stop()
		group.Wait()
		close(errs)
		var list []error
		for err := range errs {
			if err != nil {
				list = append(list, err)
			}
		}
		return list
	})
	t.Cleanup(func() { p.stop() })
	return p
}

// inviteOnto lets players come, a few at a time, until each of so many Servers has
// some: who lands where is chance, once kube-proxy knows them all.
func inviteOnto(ctx context.Context, t *testing.T, g env.Game, servers int) *party {
	t.Helper()
	const most = 64
	var names []string
	waitEndpoints(ctx, t, g, "the Servers", func(ready, _ map[string]bool) bool {
		names = slices.Collect(maps.Keys(ready))
		return len(ready) == servers
	})
	for _, name := range names {
		s := &v1alpha1.Server{}
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: name}, s); err != nil {
			t.Fatal(err)
		}
		if err := suite.Cluster.WaitPodRouted(ctx, s.Status.PodIP); err != nil {
			t.Fatal(err)
		}
	}
	all := &party{stop: func() []error { return nil }}
	for len(all.players) < most {
		more, before := invite(ctx, t, g, 4), all.stop
		all.players = append(all.players, more.players...)
		all.stop = func() []error { return append(before(), more.stop()...) }
		if len(all.on(ctx, t)) == servers {
			return all
		}
	}
	t.Fatalf("%d players are on %v, want %d Servers to have some", most, all.on(ctx, t), servers)
	return nil
}

// leave ends the players' game, and checks that nothing of it was lost.
func (p *party) leave(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, err := range p.stop() {
		t.Error(err)
	}
	for _, one := range p.players {
		if err := one.Drain(ctx); err != nil {
			t.Error(err)
		}
		suite.Intact(t, "a player", one)
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
}

// on counts the players by the Server that answers them.
func (p *party) on(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	err := env.WaitUntil(ctx, "each player has been answered", func(context.Context) (bool, error) {
		clear(counts)
		for _, one := range p.players {
			if paths := one.Stats().Paths; len(paths) > 0 {
				counts[paths[0].Server]++
			}
		}
		total := 0
		for _, n := range counts {
			total += n
		}
		return total == len(p.players), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// A drained Server keeps its players to the end, over TCP and UDP, and gets no
// new one. Then it goes.
func TestADrainedServerKeepsItsPlayers(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := behindAService(ctx, t, ns, 2, env.Game{})
	early := inviteOnto(ctx, t, g, 2)
	for name := range early.on(ctx, t) {
		if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKey{Namespace: ns, Name: name}, "occupied", func(s *v1alpha1.Server) bool {
			return s.Status.Players != nil && s.Status.Players.Current > 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	suite.ScaleFleet(ctx, t, g.Key(), 1)
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "1 and 1 that drains", func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == 1 && f.Status.DrainingReplicas == 1
	}); err != nil {
		t.Fatal(err)
	}
	var drained, stays string
	waitEndpoints(ctx, t, g, "one server, and one that keeps its players", func(ready, kept map[string]bool) bool {
		for name := range ready {
			stays = name
		}
		for name := range kept {
			drained = name
		}
		return len(ready) == 1 && len(kept) == 1
	})
	leaving := &v1alpha1.Server{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: drained}, leaving); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitUnrouted(ctx, leaving.Status.PodIP); err != nil {
		t.Fatal(err)
	}
	late := invite(ctx, t, g, 8)
	if counts := late.on(ctx, t); counts[stays] != 16 {
		t.Errorf("the players who came after the drain are on %v, want all 16 on %s", counts, stays)
	}
	late.leave(ctx, t)
	early.leave(ctx, t)
	gone(ctx, t, &v1alpha1.Server{ObjectMeta: metaOf(ns, drained)})
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "1 ready", ready(1)); err != nil {
		t.Fatal(err)
	}
}

// A Fleet behind one address: three Servers with two players stay awake; when
// they have left the Fleet goes to zero, and the next player wakes it.
func TestAFleetSleepsWhenItsPlayersHaveLeft(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	// It may sleep once its players are there: its servers come one after the other.
	g := behindAService(ctx, t, ns, 3, env.Game{IdlePlayers: true})
	address := suite.ClusterIP(ctx, t, g, env.GameTCP)
	// Who came through the resolver over UDP would keep it awake for two minutes more.
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitDirect(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	two := invite(ctx, t, g, 1)
	two.on(ctx, t)
	const sleepAfter = 5 * time.Second
	wakeful := es.DeepCopy()
	es.Spec.SleepAfter = &metav1.Duration{Duration: sleepAfter}
	if err := suite.Cluster.Client.Patch(ctx, es, client.MergeFrom(wakeful)); err != nil {
		t.Fatal(err)
	}
	if es, err := neverAsleep(ctx, g, 3*sleepAfter); err != nil {
		t.Fatalf("%v: %+v", err, es.Status)
	}
	two.leave(ctx, t)
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "empty", func(f *v1alpha1.Fleet) bool {
		return ptr.Deref(f.Spec.Replicas, 1) == 0 && f.Status.Replicas == 0 && f.Status.DrainingReplicas == 0
	}); err != nil {
		t.Fatal(err)
	}
	if suite.ClusterIP(ctx, t, g, env.GameTCP) != address {
		t.Error("the address has changed")
	}
	for _, network := range []string{"tcp", "udp"} {
		at := address
		if network == "udp" {
			at = suite.ClusterIP(ctx, t, g, env.GameUDP)
		}
		stats, err := suite.PlayOnce(ctx, network, at)
		if err != nil {
			t.Fatalf("play over %s: %v", network, err)
		}
		t.Logf("a player over %s was answered by %s", network, stats.Paths[0].Server)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, g.Key(), "3 ready", ready(3)); err != nil {
		t.Fatal(err)
	}
}

var errAsleep = errors.New("the service falls asleep under its players")

// neverAsleep watches that a service stays awake.
func neverAsleep(ctx context.Context, g env.Game, d time.Duration) (*v1alpha1.ElasticService, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	es := &v1alpha1.ElasticService{}
	_, err := suite.Cluster.WaitFor(ctx, g.Key(), "falling asleep", func(now *v1alpha1.ElasticService) bool {
		es = now
		return now.Status.Phase != v1alpha1.PhaseAwake
	})
	if err == nil {
		return es, errAsleep
	}
	return es, nil
}
