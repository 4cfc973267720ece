package games

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/dev/devcluster"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
)

// untouched and dug are how high the world is.
const untouched, dug = 4, 3

// world is a Minecraft game of npm's flying-squid that keeps its world on disk.
type world struct {
	t       *testing.T
	game    env.Game
	modules string
}

// newWorld makes a GameType whose Servers have a disk each.
func newWorld(ctx context.Context, t *testing.T, namespace string, replicas int32, change func(*v1alpha1.GameTypeSpec)) *world {
	t.Helper()
	image, modules, err := node.Minecraft(ctx, suite.Cluster, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	command, err := node.WorldCommand("/world")
	if err != nil {
		t.Fatal(err)
	}
	pod := suite.Cluster.ServerSpec().Template
	game := &pod.Spec.Containers[0]
	game.Image, game.Args, game.Command = image, nil, command
	spec := v1alpha1.GameTypeSpec{
		Replicas: &replicas,
		Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{
			Template: pod,
			Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: node.MinecraftPort, Protocol: "minecraft"}},
			// On a busy machine the game may answer nobody for seconds.
			Health:  v1alpha1.HealthSpec{Period: &metav1.Duration{Duration: time.Second}, FailureThreshold: 30},
			Storage: []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi")}},
		}},
	}
	if change != nil {
		change(&spec)
	}
	w := &world{t: t, game: env.Game{Namespace: namespace, Name: "world"}, modules: modules}
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.game.Name}, Spec: spec}
	if err := suite.Cluster.Client.Create(ctx, gt); err != nil {
		t.Fatal(err)
	}
	return w
}

// place is the key of a place's Server, which is its Pod's, too.
func (w *world) place(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: w.game.Namespace, Name: fmt.Sprintf("%s-%d", w.game.Name, n)}
}

// ready waits until a place's Server is.
func (w *world) ready(ctx context.Context, n int) *v1alpha1.Server {
	w.t.Helper()
	s, err := suite.Cluster.WaitServer(ctx, w.place(n), "Ready", func(s *v1alpha1.Server) bool {
		return s.Status.State == v1alpha1.ServerReady && s.DeletionTimestamp == nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// played waits until a place's Server is known to have a player: one that is thought empty is
// deleted, not drained, and then stays for as long as the player does.
func (w *world) played(ctx context.Context, n int) *v1alpha1.Server {
	w.t.Helper()
	s, err := suite.Cluster.WaitServer(ctx, w.place(n), "told of its player", func(s *v1alpha1.Server) bool {
		return s.Status.State == v1alpha1.ServerReady && s.Status.Players != nil && s.Status.Players.Current == 1
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// join has a player dig at a column of the world, where the columns before must have been dug and
// no other.
func (w *world) join(ctx context.Context, address string, column int, before ...int) *node.Miner {
	w.t.Helper()
	const most = 3 * time.Minute // the player's program alone needs seconds of a processor
	one, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	type result struct {
		m   *node.Miner
		err error
	}
	done := make(chan result, 1)
	go func() {
		m, err := node.Mine(ctx, suite.Cluster, w.modules, address, column)
		done <- result{m, err}
	}()
	var got result
	select {
	case got = <-done:
	case <-one.Done():
		w.t.Fatalf("nobody gets into the world within %s", most)
	}
	if got.err != nil {
		w.t.Fatal(got.err)
	}
	for x, height := range got.m.Heights {
		if want := map[bool]int{true: dug, false: untouched}[slices.Contains(before, x)]; height != want {
			w.t.Fatalf("where column %d is to be dug the world is %v high, want column %d to be %d", column, got.m.Heights, x, want)
		}
	}
	return got.m
}

// mine has a player dig and leave.
func (w *world) mine(ctx context.Context, address string, column int, before ...int) {
	w.t.Helper()
	if err := w.join(ctx, address, column, before...).Leave(); err != nil {
		w.t.Fatal(err)
	}
}

// saved waits until a place's world is written to its disk after a time.
func (w *world) saved(ctx context.Context, n int, after time.Time) {
	w.t.Helper()
	files := filepath.Join(devcluster.StateDir, "volumes", "*_"+w.game.Namespace+"_"+w.place(n).Name+"-world", "region", "r.0.0.mca")
	err := env.WaitUntil(ctx, "the world is saved", func(context.Context) (bool, error) {
		found, err := filepath.Glob(files)
		if err != nil || len(found) != 1 {
			return false, err
		}
		info, err := os.Stat(found[0])
		return err == nil && info.ModTime().After(after), err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// The world of a game is the same after each of several sleeps, an update under a player, and a crash:
// what real players of a real server have dug is dug, and nothing else.
func TestAWorldOutlastsSleepUpdateAndCrash(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	w := newWorld(ctx, t, ns, 1, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Second}}
	})
	w.ready(ctx, 0)
	address := suite.ClusterIP(ctx, t, w.game, node.MinecraftPort)
	var before []int
	mine := func() {
		t.Helper()
		w.mine(ctx, address, len(before), before...)
		before = append(before, len(before))
	}
	for range *sleeps {
		if _, err := suite.Cluster.WaitPhase(ctx, w.game.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
			t.Fatal(err)
		}
		mine()
	}

	// An update waits for who plays.
	player := w.join(ctx, address, len(before), before...)
	before = append(before, len(before))
	playing := w.played(ctx, 0)
	editGameType(ctx, t, w.game, func(s *v1alpha1.GameTypeSpec) {
		game := &s.Template.Spec.Template.Spec.Containers[0]
		game.Env = append(game.Env, corev1.EnvVar{Name: "VERSION", Value: "2"})
		s.Sleep.After = &metav1.Duration{Duration: time.Hour}
	})
	if _, err := suite.Cluster.WaitServer(ctx, w.place(0), "drained", func(s *v1alpha1.Server) bool { return s.Spec.Drain }); err != nil {
		t.Fatal(err)
	}
	stays(ctx, t, playing, 2*time.Second)
	if err := player.Leave(); err != nil {
		t.Fatalf("the player was cut off: %v", err)
	}
	gone(ctx, t, playing)
	updated := w.ready(ctx, 0)
	if env := updated.Spec.Template.Spec.Containers[0].Env; env[len(env)-1].Value != "2" {
		t.Errorf("the Server after the update has the environment %v", env)
	}
	waitGameType(ctx, t, w.game, "updated", func(gt *v1alpha1.GameType) bool { return settled(gt, 1) })
	mine()

	// The game is killed with a player on it.
	player = w.join(ctx, address, len(before), before...)
	before = append(before, len(before))
	w.saved(ctx, 0, time.Now().Add(time.Second)) // the game saves each second
	pod := podOf(updated)
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	game, err := suite.Cluster.Container(*pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := game.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	_ = player.Leave() // its session is over, whoever ended it
	if _, err := waitPod(ctx, updated, "running again", func(p *corev1.Pod) bool {
		game := gamepod.Status(updated, p)
		return p.UID == pod.UID && game != nil && game.RestartCount > 0 && game.State.Running != nil
	}); err != nil {
		t.Fatal(err)
	}
	w.ready(ctx, 0)
	mine()
	w.claims(ctx, 1)
}

// claims checks how many disks there are.
func (w *world) claims(ctx context.Context, want int) {
	w.t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(w.game.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	if len(list.Items) != want {
		w.t.Errorf("there are %d disks, want %d", len(list.Items), want)
	}
}

// Each place of a game has a world of its own, which is there again after its place was gone.
func TestEachPlaceHasItsWorld(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	w := newWorld(ctx, t, ns, 3, nil)
	addresses := make([]string, 3)
	for n := range addresses {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("place-%d", n)},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{wellknown.ServerLabel: w.place(n).Name}, Ports: []corev1.ServicePort{{Port: node.MinecraftPort}},
			},
		}
		if err := suite.Cluster.Client.Create(ctx, svc); err != nil {
			t.Fatal(err)
		}
		addresses[n] = suite.ClusterIP(ctx, t, env.Game{Namespace: ns, Name: svc.Name}, node.MinecraftPort)
	}
	dig := func(n, column int, before ...int) {
		t.Helper()
		s := w.ready(ctx, n)
		if err := suite.Cluster.WaitPodRouted(ctx, s.Status.PodIP); err != nil {
			t.Fatal(err)
		}
		w.mine(ctx, addresses[n], column, before...)
	}
	for n := range 3 {
		dig(n, n)
	}
	scale := func(n string) {
		t.Helper()
		if out, err := kubectl(ctx, "scale", "-n", ns, "gametype/world", "--replicas="+n); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	upper := []client.Object{w.ready(ctx, 1), w.ready(ctx, 2)}
	scale("1")
	gone(ctx, t, upper...)
	scale("3")
	for n := range 3 {
		dig(n, n+5, n)
	}
	w.claims(ctx, 3)

	// Larger disks are asked for, which this StorageClass can't give: the game goes on with those
	// that it has, place by place, and it is said.
	old := []client.Object{w.ready(ctx, 0), w.ready(ctx, 1), w.ready(ctx, 2)}
	editGameType(ctx, t, w.game, func(s *v1alpha1.GameTypeSpec) {
		s.Template.Spec.Storage[0].Size = resource.MustParse("2Gi")
		s.Template.Spec.Storage[0].OnDelete = v1alpha1.StorageDelete
	})
	gone(ctx, t, old...)
	for n := range 3 {
		dig(n, -1, n, n+5)
	}
	err := env.WaitUntil(ctx, "a disk that can't grow is reported", func(ctx context.Context) (bool, error) {
		var events corev1.EventList
		err := suite.Cluster.Client.List(ctx, &events, client.InNamespace(ns))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "DiskNotChanged" && e.InvolvedObject.Name == w.place(0).Name
		}), err
	})
	if err != nil {
		t.Fatal(err)
	}

	// With the game its worlds go, as the spec says now.
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: w.game.Name}}
	if err := suite.Cluster.Client.Delete(ctx, gt); err != nil {
		t.Fatal(err)
	}
	if err := env.WaitUntil(ctx, "the disks are gone", func(ctx context.Context) (bool, error) {
		var list corev1.PersistentVolumeClaimList
		err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(ns))
		return len(list.Items) == 0, err
	}); err != nil {
		t.Fatal(err)
	}
}

// No other Pod gets the disk of a Pod whose node doesn't answer; and a world moves with its Pod to
// another node. It takes nodes out of service, and so runs by itself.
func TestADiskHasOnePodWhileItsNodeIsCutOff(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	const number, name = 2, "node-2"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_ = suite.Cluster.Cluster.RestoreNode(ctx, number)
		if _, err := kubectl(ctx, "uncordon", name); err != nil {
			t.Error(err)
		}
		if err := nodeReady(ctx, name); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(ctx, t, ns, 1, func(s *v1alpha1.GameTypeSpec) {
		pod := &s.Template.Spec.Template.Spec
		pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
			}}},
		}}}}
		for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
			pod.Tolerations = append(pod.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1),
			})
		}
	})
	first := w.ready(ctx, 0)
	if first.Status.NodeName != name {
		t.Fatalf("the game is on %s", first.Status.NodeName)
	}
	address := suite.ClusterIP(ctx, t, w.game, node.MinecraftPort)
	w.mine(ctx, address, 0)
	pods := func() (list corev1.PodList) {
		t.Helper()
		if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		return list
	}
	old := pods().Items[0]
	if err := suite.Cluster.Cluster.CutNode(ctx, number); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitServer(ctx, w.place(0), "lost", func(s *v1alpha1.Server) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
		return c != nil && c.Reason == "NodeLost"
	}); err != nil {
		t.Fatal(err)
	}
	// Somebody who doesn't know better deletes the Server, and its Pod's time to end passes.
	deleteServer(ctx, t, first)
	if _, err := waitPod(ctx, first, "told to end", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitServer(ctx, w.place(0), "waiting for its node", func(s *v1alpha1.Server) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, conditions.DeletionAllowed)
		return c != nil && c.Reason == "NodeLost"
	}); err != nil {
		t.Fatal(err)
	}
	if list := pods().Items; len(list) != 1 || list[0].UID != old.UID {
		t.Fatalf("while the node is cut off there are %d Pods", len(list))
	}
	if err := suite.Cluster.Cluster.RestoreNode(ctx, number); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, first)
	w.ready(ctx, 0)
	if err := nodeReady(ctx, name); err != nil {
		t.Fatal(err)
	}
	w.mine(ctx, address, 1, 0)

	// Both nodes are drained, one after the other: the Pod and its world move.
	for i := range 2 {
		from := w.ready(ctx, 0).Status.NodeName
		waitLabel(ctx, t, w.ready(ctx, 0), "true")
		if out, err := kubectl(ctx, "drain", from, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=dormouse.dev/gametype=world", "--timeout=60s"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, err := suite.Cluster.WaitServer(ctx, w.place(0), "on another node", func(s *v1alpha1.Server) bool {
			return s.Status.State == v1alpha1.ServerReady && s.Status.NodeName != from
		})
		if err != nil {
			t.Fatal(err)
		}
		w.mine(ctx, address, 2+i, []int{0, 1, 2}[:2+i]...)
		if out, err := kubectl(ctx, "uncordon", from); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}
