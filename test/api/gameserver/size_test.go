package gameserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// mostBytes bounds a Ready Server of a Fleet as the API server stores it, with who wrote which field. Of ten
// thousand every 100 bytes are a megabyte in etcd, in the API server's memory and in each list; and all
// of a Server is read and written with each of its changes.
const mostBytes = 2560

// A Server doesn't store what its Fleet says, nor what goes without saying. The Fleet is bench-scale's.
func TestAServerOfAFleetIsSmall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.lonely(&v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "arena"},
		Spec: v1alpha1.FleetSpec{
			Replicas: new(int32(1)),
			Template: v1alpha1.ServerTemplate{
				Metadata: v1alpha1.TemplateMetadata{Labels: map[string]string{"mode": "duel"}},
				Spec: v1alpha1.ServerSpec{
					Ports:   []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7000, Protocol: v1alpha1.ServerProtocolUDP}},
					Players: &v1alpha1.PlayersSpec{Capacity: 16},
					Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
						ServiceAccountName: "default", // see podSpec
						Containers:         []corev1.Container{{Name: "game", Image: "registry.example/game:1", Args: []string{"--udp=7000"}}},
					}},
				},
			},
		},
	})
	g.plays(w.node("node-011"), "10.244.0.154")
	g.say(0, g.report(1, func(r *reportapi.Report) {
		r.Instance, r.Game.Reported, r.Game.Players = "bench", true, &v1alpha1.PlayersStatus{Capacity: 16}
		r.Memory = &reportapi.Memory{Started: new(time.Now())}
	}))
	w.eventually("the Server is Ready", func(ctx context.Context) error {
		s := g.server(ctx)
		if s.Status.State != v1alpha1.ServerReady || s.Status.Game == nil || s.Status.Game.Started == nil || s.Status.PodIP == "" || s.Status.NodeName == "" || len(s.Status.Ports) != 1 {
			return fmt.Errorf("its status is %+v", s.Status)
		}
		return nil
	})

	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Server"))
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: g.name}, stored); err != nil {
		t.Fatal(err)
	}
	// What is this test's own.
	stored.SetNamespace("games")
	unstructured.RemoveNestedField(stored.Object, "spec", "template", "spec", "serviceAccountName")
	text, err := json.Marshal(stored.Object)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > mostBytes {
		t.Errorf("it has %d bytes, want at most %d:\n%s", len(text), mostBytes, text)
	}
}

// lonely makes a Fleet of one, and has a game run in its Server.
func (w *world) lonely(f *v1alpha1.Fleet) *game {
	w.t.Helper()
	if err := w.c.Create(w.t.Context(), f); err != nil {
		w.t.Fatalf("create Fleet %s: %v", f.Name, err)
	}
	var servers v1alpha1.ServerList
	w.eventually("the Fleet has a Server", func(ctx context.Context) error {
		if err := w.c.List(ctx, &servers, client.InNamespace(w.ns)); err != nil || len(servers.Items) != 1 {
			return fmt.Errorf("there are %d, %w", len(servers.Items), err)
		}
		return nil
	})
	return w.run(servers.Items[0].Name)
}

// node makes a node that is ready, for this test.
func (w *world) node(name string) string {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.c.Create(w.t.Context(), n); err != nil {
		w.t.Fatalf("create Node %s: %v", name, err)
	}
	w.t.Cleanup(func() { _ = w.c.Delete(context.WithoutCancel(w.t.Context()), n) })
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := w.c.Status().Update(w.t.Context(), n); err != nil {
		w.t.Fatalf("write the status of Node %s: %v", name, err)
	}
	return name
}

// plays has the game's Pod be ready on a node.
func (g *game) plays(node, ip string) {
	g.w.t.Helper()
	ctx := g.w.t.Context()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: g.name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := g.w.c.SubResource("binding").Create(ctx, g.pod, binding); err != nil {
		g.w.t.Fatalf("bind Pod %s: %v", g.name, err)
	}
	original := g.pod.DeepCopy()
	g.pod.Status.PodIP, g.pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	g.pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
	if err := g.w.c.Status().Patch(ctx, g.pod, client.MergeFrom(original)); err != nil {
		g.w.t.Fatalf("write the status of Pod %s: %v", g.name, err)
	}
}
