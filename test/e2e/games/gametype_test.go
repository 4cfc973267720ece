package games

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// newGameType makes a GameType of the test game and waits until players reach each
// of its Servers.
func newGameType(ctx context.Context, t *testing.T, namespace string, replicas int32, change ...func(*v1alpha1.GameTypeSpec)) env.Game {
	t.Helper()
	g := env.Game{Namespace: namespace, Name: "lobby", TCP: []int32{env.GameTCP}, UDP: []int32{env.GameUDP}}
	if err := suite.Cluster.CreateGameType(ctx, namespace, g.Name, replicas, change...); err != nil {
		t.Fatal(err)
	}
	waitGameType(ctx, t, g, "available", func(gt *v1alpha1.GameType) bool {
		return settled(gt, replicas) && gt.Status.Phase == v1alpha1.PhaseAwake
	})
	waitEndpoints(ctx, t, g, "all servers", func(ready, _ map[string]bool) bool { return len(ready) == int(replicas) })
	// One who comes through the resolver would stay a session of it.
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitDirect(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	return g
}

func waitGameType(ctx context.Context, t *testing.T, g env.Game, what string, done func(*v1alpha1.GameType) bool) *v1alpha1.GameType {
	t.Helper()
	gt, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameTypeList{}, g.Key(), what, done)
	if err != nil {
		t.Fatal(err)
	}
	return gt
}

// settled reports whether so many Servers are Ready, all of the newest revision.
func settled(gt *v1alpha1.GameType, replicas int32) bool {
	s := gt.Status
	return s.ObservedGeneration == gt.Generation && s.Replicas == replicas && s.ReadyReplicas == replicas && s.UpdatedReplicas == replicas &&
		meta.IsStatusConditionTrue(s.Conditions, conditions.Progressing) && meta.IsStatusConditionTrue(s.Conditions, conditions.Available)
}

// editGameType changes a GameType as its owner does.
func editGameType(ctx context.Context, t *testing.T, g env.Game, change func(*v1alpha1.GameTypeSpec)) {
	t.Helper()
	now := &v1alpha1.GameType{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), now); err != nil {
		t.Fatal(err)
	}
	changed := now.DeepCopy()
	change(&changed.Spec)
	if err := suite.Cluster.Client.Patch(ctx, changed, client.MergeFrom(now)); err != nil {
		t.Fatal(err)
	}
}

// annotateGameType sets an annotation, or takes it off where the value is nil.
func annotateGameType(ctx context.Context, t *testing.T, g env.Game, name string, value any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
	if err != nil {
		t.Fatal(err)
	}
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
	if err := suite.Cluster.Client.Patch(ctx, gt, client.RawPatch(types.MergePatchType, text)); err != nil {
		t.Fatal(err)
	}
}

// serversOf are a GameType's, by name.
func serversOf(ctx context.Context, t *testing.T, g env.Game) map[string]*v1alpha1.Server {
	t.Helper()
	var list v1alpha1.ServerList
	if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingLabels{wellknown.GameTypeLabel: g.Name}); err != nil {
		t.Fatal(err)
	}
	servers := map[string]*v1alpha1.Server{}
	for i := range list.Items {
		servers[list.Items[i].Name] = &list.Items[i]
	}
	return servers
}

// A GameType sleeps when its players have left, and the next one wakes it.
func TestAGameTypeSleepsAndWakes(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 2, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: 5 * time.Second}}
	})
	address := suite.ClusterIP(ctx, t, g, env.GameTCP)
	asleep := func() {
		t.Helper()
		waitGameType(ctx, t, g, "asleep", func(gt *v1alpha1.GameType) bool {
			return gt.Status.Phase == v1alpha1.PhaseAsleep && gt.Status.Replicas == 0 && gt.Status.DrainingReplicas == 0
		})
	}
	two := invite(ctx, t, g, 1)
	two.on(ctx, t)
	if es, err := neverAsleep(ctx, g, 12*time.Second); err != nil {
		t.Fatalf("%v: %+v", err, es.Status)
	}
	two.leave(ctx, t)
	asleep()
	out, err := kubectl(ctx, "get", "-n", ns, "gt", "lobby")
	if err != nil || !strings.Contains(out, "Asleep") {
		t.Errorf("kubectl get gt says:\n%s%v", out, err)
	}
	// A new version while it sleeps wakes nobody, and is what the next player gets.
	editGameType(ctx, t, g, version("2"))
	waitGameType(ctx, t, g, "asleep at version 2", func(gt *v1alpha1.GameType) bool {
		return gt.Status.Replicas == 0 && gt.Status.UpdateRevision != nil && gt.Status.UpdateRevision.Number == 2
	})
	// Over UDP the resolver would remember the player for two minutes. The player stays until the update is over:
	// without one the game may sleep again before that.
	one := suite.DialTCP(ctx, t, address)
	if _, err := one.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	waitGameType(ctx, t, g, "awake at version 2", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 2) && gt.Status.Phase == v1alpha1.PhaseAwake && gt.Status.UpdateRevision.Number == 2
	})
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if suite.ClusterIP(ctx, t, g, env.GameTCP) != address {
		t.Error("the address has changed")
	}
	asleep()
}

// While Servers drain new players go to the others; while all do they are held,
// and the next one that is Ready gets them.
func TestNoNewPlayerLandsOnAServerThatDrains(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 2)
	early := inviteOnto(ctx, t, g, 2)
	occupied := early.on(ctx, t)
	before := serversOf(ctx, t, g)
	for name := range occupied {
		if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(before[name]), "occupied", func(s *v1alpha1.Server) bool {
			return s.Status.Players != nil && s.Status.Players.Current > 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	// All drain at once, and the next version takes its time.
	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) {
		version("2")(s)
		s.Update.MaxSurge, s.Update.MaxUnavailable = new(intstr.FromInt32(0)), new(intstr.FromString("100%"))
		boots(&s.Template.Spec.Template.Spec.Containers[0], "8s")
	})
	waitGameType(ctx, t, g, "draining all", func(gt *v1alpha1.GameType) bool {
		return gt.Status.DrainingReplicas == 2 && gt.Status.ReadyReplicas == 0
	})
	for _, s := range before {
		if err := suite.Cluster.WaitUnrouted(ctx, s.Status.PodIP); err != nil {
			t.Fatal(err)
		}
	}
	held := invite(ctx, t, g, 4)
	for name := range held.on(ctx, t) {
		if before[name] != nil {
			t.Errorf("a player who came while all drained is on Server %s, which drains", name)
		}
	}
	waitGameType(ctx, t, g, "updated", func(gt *v1alpha1.GameType) bool { return settled(gt, 2) })
	// A thousand more, while the old ones still drain.
	const players, atOnce = 1000, 8
	var mu sync.Mutex
	on, failed := map[string]int{}, 0
	var group sync.WaitGroup
	next := make(chan int)
	tcp, udp := suite.ClusterIP(ctx, t, g, env.GameTCP), suite.ClusterIP(ctx, t, g, env.GameUDP)
	for range atOnce {
		group.Go(func() {
			for i := range next {
				network, address := "tcp", tcp
				if i%2 == 1 {
					network, address = "udp", udp
				}
				var stats player.Stats
				stats, err := suite.PlayOnce(ctx, network, address)
				mu.Lock()
				if err != nil || len(stats.Paths) == 0 {
					failed++
					t.Logf("a player over %s: %v", network, err)
				} else {
					on[stats.Paths[0].Server]++
				}
				mu.Unlock()
			}
		})
	}
	for i := range players {
		next <- i
	}
	close(next)
	group.Wait()
	t.Logf("%d players were answered by %v", players, on)
	if failed > 0 {
		t.Errorf("%d of %d players were not served", failed, players)
	}
	for name, n := range on {
		if before[name] != nil {
			t.Errorf("%d of %d new players are on Server %s, which drains", n, players, name)
		}
	}
	held.leave(ctx, t)
	early.leave(ctx, t)
}

// With skipFull a Server that is full gets nobody else, and keeps who is there.
func TestAFullServerIsSkipped(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 2, func(s *v1alpha1.GameTypeSpec) {
		s.Service.SkipFull = true
		s.Template.Spec.Players.Capacity = 2
	})
	servers := serversOf(ctx, t, g)
	var full *v1alpha1.Server
	for _, full = range servers {
		break
	}
	setPlayers(ctx, t, full, 2)
	waitEndpoints(ctx, t, g, "the one with room", func(ready, kept map[string]bool) bool {
		return len(ready) == 1 && !ready[full.Name] && kept[full.Name]
	})
	if err := suite.Cluster.WaitUnrouted(ctx, full.Status.PodIP); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		stats, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, env.GameTCP))
		if err != nil {
			t.Fatal(err)
		}
		if stats.Paths[0].Server == full.Name {
			t.Fatalf("a player is on Server %s, which is full", full.Name)
		}
	}
	waitGameType(ctx, t, g, "ready with both", func(gt *v1alpha1.GameType) bool { return settled(gt, 2) && gt.Status.Players >= 2 })
	setPlayers(ctx, t, full, 1)
	waitEndpoints(ctx, t, g, "both", func(ready, _ map[string]bool) bool { return len(ready) == 2 })
}

// A deleted GameType takes all that it made with it, the Servers with players
// last, which lose nothing until they leave.
func TestADeletedGameTypeLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 3)
	some := invite(ctx, t, g, 1)
	occupied := some.on(ctx, t)
	for name := range occupied {
		if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKey{Namespace: ns, Name: name}, "occupied", func(s *v1alpha1.Server) bool {
			return s.Status.Players != nil && s.Status.Players.Current > 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	gt := &v1alpha1.GameType{ObjectMeta: metaOf(ns, g.Name)}
	if err := suite.Cluster.Client.Delete(ctx, gt); err != nil {
		t.Fatal(err)
	}
	for name, s := range serversOf(ctx, t, g) {
		if occupied[name] == 0 {
			gone(ctx, t, s)
		}
	}
	for name := range occupied {
		stays(ctx, t, &v1alpha1.Server{ObjectMeta: metaOf(ns, name)}, 5*time.Second)
	}
	some.leave(ctx, t)
	gone(ctx, t, gt)
	if err := env.WaitUntil(ctx, "nothing of the GameType is left", func(ctx context.Context) (bool, error) {
		left := 0
		for _, list := range []client.ObjectList{
			&v1alpha1.FleetList{}, &v1alpha1.ServerList{}, &v1alpha1.ElasticServiceList{}, &corev1.ServiceList{}, &corev1.PodList{},
		} {
			if err := suite.Cluster.Client.List(ctx, list, client.InNamespace(ns)); err != nil {
				return false, err
			}
			left += meta.LenList(list)
		}
		return left == 0, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Somebody else's Service of the same name is left alone.
func TestAForeignServiceIsNotTakenOver(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	foreign := &corev1.Service{
		ObjectMeta: metaOf(ns, "lobby"),
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "other"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := suite.Cluster.Client.Create(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	gt := &v1alpha1.GameType{
		ObjectMeta: metaOf(ns, "lobby"),
		Spec:       v1alpha1.GameTypeSpec{Template: v1alpha1.ServerTemplate{Spec: suite.Cluster.ServerSpec()}},
	}
	if err := suite.Cluster.Client.Create(ctx, gt); err != nil {
		t.Fatal(err)
	}
	waitGameType(ctx, t, env.Game{Namespace: ns, Name: gt.Name}, "told of the Service", func(gt *v1alpha1.GameType) bool {
		c := meta.FindStatusCondition(gt.Status.Conditions, conditions.ServiceReady)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reasons.NameTaken
	})
	if err := suite.Cluster.Client.Delete(ctx, gt); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, gt)
	now := &corev1.Service{}
	if err := suite.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "lobby"}, now); err != nil {
		t.Fatal(err)
	}
	if now.UID != foreign.UID || now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the Service was changed: %+v", now)
	}
}
