package games

import (
	"context"
	"encoding/json"
	"errors"
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

// version makes the template another one.
func version(name string) func(*v1alpha1.GameTypeSpec) {
	return func(s *v1alpha1.GameTypeSpec) {
		game := &s.Template.Spec.Template.Spec.Containers[0]
		game.Env = append(game.Env[:1:1], corev1.EnvVar{Name: "VERSION", Value: name})
	}
}

// boots lets a game take its time, and say when it is up.
func boots(game *corev1.Container, delay string) {
	game.Args = append(game.Args, "--boot-delay="+delay)
	game.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 1,
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

// fewestReady watches a GameType, and gives the fewest Servers that were Ready at
// any time until stop is called.
func fewestReady(ctx context.Context, t *testing.T, g env.Game) (stop func() int32) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	const none = int32(1 << 30)
	fewest := none
	ended := make(chan error, 1)
	go func() {
		_, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameTypeList{}, g.Key(), "over", func(gt *v1alpha1.GameType) bool {
			fewest = min(fewest, gt.Status.ReadyReplicas)
			return false
		})
		ended <- err
	}()
	stop = sync.OnceValue(func() int32 {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || fewest == none {
			t.Errorf("the GameType wasn't watched all the time: %v", err)
		}
		return fewest
	})
	t.Cleanup(func() { stop() })
	return stop
}

// Scenario 20: a new version takes over while people play. Nobody notices: those
// who play stay where they are and lose nothing, and new ones get the new version.
func TestAnUpgradeThatNoPlayerNotices(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 3, func(s *v1alpha1.GameTypeSpec) { s.Update.MaxSurge = new(intstr.FromInt32(1)) })
	before := serversOf(ctx, t, g)
	early := inviteEvery(ctx, t, g, 4, 20*time.Millisecond)
	occupied := early.on(ctx, t)
	for name := range occupied {
		if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKey{Namespace: ns, Name: name}, "occupied", func(s *v1alpha1.Server) bool {
			return s.Status.Players != nil && s.Status.Players.Current > 0
		}); err != nil {
			t.Fatal(err)
		}
	}
	fewest := fewestReady(ctx, t, g)
	editGameType(ctx, t, g, version("2"))
	waitGameType(ctx, t, g, "updated", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 3) && int(gt.Status.DrainingReplicas) == len(occupied)
	})
	if n := fewest(); n < 3 {
		t.Errorf("only %d Servers were Ready at some time, want 3 at all times", n)
	}
	// The old ones are those on which somebody plays.
	for name := range serversOf(ctx, t, g) {
		if before[name] != nil && occupied[name] == 0 {
			t.Errorf("Server %s is of the old version and nobody plays on it", name)
		}
	}
	for name := range occupied {
		if err := suite.Cluster.WaitUnrouted(ctx, before[name].Status.PodIP); err != nil {
			t.Fatal(err)
		}
	}
	late := inviteEvery(ctx, t, g, 4, 20*time.Millisecond)
	for name := range late.on(ctx, t) {
		if before[name] != nil {
			t.Errorf("a new player is on Server %s, which is of the old version", name)
		}
	}
	for name := range early.on(ctx, t) {
		if occupied[name] == 0 {
			t.Errorf("an early player has moved to Server %s", name)
		}
	}
	early.leave(ctx, t)
	late.leave(ctx, t)
	waitGameType(ctx, t, g, "rid of the old version", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 3) && gt.Status.DrainingReplicas == 0 && gt.Status.CurrentRevision != nil && gt.Status.CurrentRevision.Number == 2
	})
	for name := range serversOf(ctx, t, g) {
		if before[name] != nil {
			t.Errorf("Server %s of the old version is still there", name)
		}
	}
	var fleets v1alpha1.FleetList
	if err := suite.Cluster.Client.List(ctx, &fleets, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	running := 0
	for _, f := range fleets.Items {
		if *f.Spec.Replicas > 0 {
			running++
		}
	}
	if running != 1 {
		t.Errorf("%d Fleets have Servers, want 1", running)
	}
}

// Scenario 21: a version that can't start never costs a Server that works, says
// what is wrong, and heals when it is taken back.
func TestABrokenVersionCostsNoServer(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 3, func(s *v1alpha1.GameTypeSpec) {
		s.Update.ProgressDeadline = &metav1.Duration{Duration: 8 * time.Second}
	})
	before := serversOf(ctx, t, g)
	fewest := fewestReady(ctx, t, g)
	var good string
	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) {
		game := &s.Template.Spec.Template.Spec.Containers[0]
		good, game.Image = game.Image, "dormouse.invalid/no-such-game:1"
	})
	gt := waitGameType(ctx, t, g, "known to be broken, and why", func(gt *v1alpha1.GameType) bool {
		c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Progressing)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "no-such-game")
	})
	if !meta.IsStatusConditionTrue(gt.Status.Conditions, conditions.Available) {
		t.Errorf("it isn't Available though its old Servers are: %+v", gt.Status.Conditions)
	}
	annotateGameType(ctx, t, g, wellknown.UndoToAnnotation, gt.Status.CurrentRevision.Name)
	waitGameType(ctx, t, g, "undone", func(gt *v1alpha1.GameType) bool {
		c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Updated)
		return settled(gt, 3) && c.Status == metav1.ConditionTrue && c.Reason == reasons.Undone
	})
	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) { s.Template.Spec.Template.Spec.Containers[0].Image = good })
	annotateGameType(ctx, t, g, wellknown.UndoToAnnotation, nil)
	waitGameType(ctx, t, g, "healed", func(gt *v1alpha1.GameType) bool {
		c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Updated)
		return settled(gt, 3) && c.Status == metav1.ConditionTrue && c.Reason == reasons.Updated
	})
	if n := fewest(); n < 3 {
		t.Errorf("only %d Servers were Ready at some time, want 3 at all times", n)
	}
	after := serversOf(ctx, t, g)
	for name, s := range before {
		if now := after[name]; now == nil || now.UID != s.UID {
			t.Errorf("Server %s was replaced", name)
		}
	}
}

// Scenario 22: the number of Servers changes in the middle of an update.
func TestReplicasChangeInTheMiddleOfAnUpdate(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 2)
	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) {
		version("2")(s)
		boots(&s.Template.Spec.Template.Spec.Containers[0], "4s")
	})
	waitGameType(ctx, t, g, "in the middle of an update", func(gt *v1alpha1.GameType) bool {
		return gt.Status.UpdatedReplicas > 0 && gt.Status.UpdatedReplicas < gt.Status.Replicas
	})
	if out, err := kubectl(ctx, "scale", "-n", ns, "gametype/lobby", "--replicas=4"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	waitGameType(ctx, t, g, "updated, with 4", func(gt *v1alpha1.GameType) bool { return settled(gt, 4) })
	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) { version("3")(s) })
	waitGameType(ctx, t, g, "in the middle of the next", func(gt *v1alpha1.GameType) bool {
		return gt.Status.UpdateRevision != nil && gt.Status.UpdateRevision.Number == 3 && gt.Status.UpdatedReplicas < gt.Status.Replicas
	})
	if out, err := kubectl(ctx, "scale", "-n", ns, "gametype/lobby", "--replicas=1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	waitGameType(ctx, t, g, "updated, with 1", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 1) && gt.Status.DrainingReplicas == 0
	})
	if out, err := kubectl(ctx, "wait", "-n", ns, "gametype/lobby", "--for=condition=Available", "--timeout=10s"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
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
	// Over UDP the resolver would remember the player for two minutes.
	if _, err := suite.PlayOnce(ctx, "tcp", address); err != nil {
		t.Fatal(err)
	}
	waitGameType(ctx, t, g, "awake at version 2", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 2) && gt.Status.Phase == v1alpha1.PhaseAwake && gt.Status.UpdateRevision.Number == 2
	})
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
