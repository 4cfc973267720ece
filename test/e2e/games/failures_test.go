package games

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/devcluster"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/test/e2e/suite"
)

// half is a Fleet of which some Servers have players, and the others none.
type half struct {
	key             types.NamespacedName
	occupied, empty []*v1alpha1.Server
}

// halfOccupied makes a Fleet of four Servers with players on two of them.
func halfOccupied(ctx context.Context, t *testing.T, namespace string) half {
	t.Helper()
	h := half{key: types.NamespacedName{Namespace: namespace, Name: "lobbies"}}
	if _, err := suite.Cluster.CreateFleet(ctx, namespace, h.key.Name, 4, suite.Cluster.ServerSpec()); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, h.key, "4 ready", ready(4)); err != nil {
		t.Fatal(err)
	}
	servers, err := suite.Cluster.Servers(ctx, namespace, h.key.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if len(h.occupied) == 2 {
			h.empty = append(h.empty, s)
			continue
		}
		setPlayers(ctx, t, s, 2)
		pod := podOf(s)
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		h.occupied = append(h.occupied, s)
	}
	return h
}

// settles checks how a scale-down to zero ends, whatever happened in its middle:
// the empty Servers go, the others stay until their players have left, and what
// the Fleet counts is so.
func (h half) settles(ctx context.Context, t *testing.T, pods map[string]types.UID) {
	t.Helper()
	for _, s := range h.empty {
		gone(ctx, t, s)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, h.key, "0 with 2 that drain", func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == 0 && f.Status.DrainingReplicas == 2 && f.Status.Players == 4
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range h.occupied {
		stays(ctx, t, s, 2*time.Second)
		pod := podOf(s)
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		if pod.UID != pods[s.Name] {
			t.Errorf("Server %s has another Pod than the one that its players were on", s.Name)
		}
		if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
			t.Fatal(err)
		}
		gone(ctx, t, s)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, h.key, "empty", func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == 0 && f.Status.DrainingReplicas == 0 && f.Status.Players == 0
	}); err != nil {
		t.Fatal(err)
	}
}

func (h half) pods(ctx context.Context, t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, s := range h.occupied {
		pod := podOf(s)
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		uids[s.Name] = pod.UID
	}
	return uids
}

// The operator's leader is killed in the middle of a scale-down.
func TestAnOperatorThatDiesLosesNoPlayers(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	h := halfOccupied(ctx, t, ns)
	pods := h.pods(ctx, t)
	leader, err := suite.Cluster.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	container, err := suite.Cluster.Container(leader)
	if err != nil {
		t.Fatal(err)
	}
	suite.ScaleFleet(ctx, t, h.key, 0)
	if err := container.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	h.settles(ctx, t, pods)
}

// The API server answers nobody for thirty seconds in the middle of a scale-down.
func TestAnAPIServerThatPausesLosesNoPlayers(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	h := halfOccupied(ctx, t, ns)
	pods := h.pods(ctx, t)
	suite.ScaleFleet(ctx, t, h.key, 0)
	if err := suite.Cluster.Cluster.Pause(devcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
	}
	if err := suite.Cluster.Cluster.Resume(devcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	h.settles(ctx, t, pods)
}

// A sidecar that crashes comes back with what it knew: at no time is the Server
// said to be deletable.
func TestASidecarThatCrashesRemembersThePlayers(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := occupied(ctx, t, ns, suite.Cluster.ServerSpec())
	sidecar, err := suite.Cluster.Sidecar(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	lost := make(chan error, 1)
	go func() {
		_, err := suite.Cluster.WaitServer(watched, client.ObjectKeyFromObject(s), "without players", func(s *v1alpha1.Server) bool {
			return s.Status.DeletionAllowed || s.Status.Players == nil || s.Status.Players.Current != 2
		})
		lost <- err
	}()
	if err := sidecar.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := waitPod(ctx, s, "restarted and ready", func(p *corev1.Pod) bool {
		beside := gamepod.SidecarStatus(p)
		return beside != nil && beside.RestartCount == 1 && podReady(p)
	}); err != nil {
		t.Fatal(err)
	}
	// What the new one knows shows in its answer to a deletion.
	deleteServer(ctx, t, s)
	if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(s), "told of its deletion", func(s *v1alpha1.Server) bool {
		return s.Status.Game != nil && s.Status.Game.ShutdownSeen
	}); err != nil {
		t.Fatal(err)
	}
	stays(ctx, t, s, 3*time.Second)
	stop()
	if err := <-lost; err == nil {
		t.Error("the Server was said to have no players, or to be deletable, while two were there")
	}
	if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, s)
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// A node vanishes in the middle of a scale-down. What ran there counts as gone
// once the node has been lost for as long as the operator was told, 20 s here,
// and no Server hangs in its deletion. The Servers of another Fleet are replaced
// on nodes that answer.
func TestANodeThatVanishesHoldsNothingUp(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	const node = 2
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := suite.Cluster.Cluster.RestoreNode(ctx, node); err != nil {
			t.Fatal(err)
		}
		if err := nodeReady(ctx, "node-2"); err != nil {
			t.Error(err)
		}
	})
	lost, safe := onNode(ctx, t, ns, "lost", "node-2"), onNode(ctx, t, ns, "safe", "node-1")
	setPlayers(ctx, t, lost, 2)
	setPlayers(ctx, t, safe, 2)
	spec := suite.Cluster.ServerSpec()
	// The Pods leave a node that doesn't answer after a second, not after five
	// minutes.
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		spec.Template.Spec.Tolerations = append(spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](1),
		})
	}
	key := types.NamespacedName{Namespace: ns, Name: "lobbies"}
	if _, err := suite.Cluster.CreateFleet(ctx, ns, key.Name, 3, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, key, "3 ready", ready(3)); err != nil {
		t.Fatal(err)
	}
	deleteServer(ctx, t, lost)
	deleteServer(ctx, t, safe)
	if err := suite.Cluster.Cluster.CutNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, lost)
	if _, err := suite.Cluster.WaitFleet(ctx, key, "3 ready on the node that is left", ready(3)); err != nil {
		t.Fatal(err)
	}
	servers, err := suite.Cluster.Servers(ctx, ns, key.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if s.Status.State == v1alpha1.ServerReady && s.Status.NodeName != "node-1" {
			t.Errorf("Server %s counts as ready on %s, which doesn't answer", s.Name, s.Status.NodeName)
		}
	}
	stays(ctx, t, safe, 2*time.Second)
	setPlayersGone(ctx, t, safe)
}

func setPlayersGone(ctx context.Context, t *testing.T, s *v1alpha1.Server) {
	t.Helper()
	if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, s)
}
