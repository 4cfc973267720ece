package suite

import (
	"context"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
)

// Asleep makes a game and waits until the resolver stands in for it.
func Asleep(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	if err := Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	es, err := Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if err := Cluster.WaitRouted(ctx, es, max(len(g.Families), 1)); err != nil {
		t.Fatal(err)
	}
}

// Scale sets the replicas of a game's Deployment, as a person does.
func Scale(ctx context.Context, t *testing.T, g env.Game, replicas int32) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := Cluster.Client.Get(ctx, g.Key(), d); err != nil {
		t.Fatal(err)
	}
	changed := d.DeepCopy()
	changed.Spec.Replicas = &replicas
	if err := Cluster.Client.Patch(ctx, changed, client.MergeFrom(d)); err != nil {
		t.Fatal(err)
	}
}

// PutToSleep scales a game's Deployment to zero as a person would, and waits until its
// ElasticService sleeps and no node sends clients to the pods that were there. A person
// doesn't wait for that before: who connects in between may meet a pod that is gone.
func PutToSleep(ctx context.Context, t *testing.T, g env.Game) *v1alpha1.ElasticService {
	t.Helper()
	var pods corev1.PodList
	if err := Cluster.Client.List(ctx, &pods, client.InNamespace(g.Namespace)); err != nil {
		t.Fatal(err)
	}
	Scale(ctx, t, g, 0)
	es, err := Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if err := Cluster.WaitRouted(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if err := Cluster.WaitUnrouted(ctx, pods.Items[i].Status.PodIP); err != nil {
			t.Fatal(err)
		}
	}
	return es
}

// Gone waits until the pods of a game that fell asleep are gone, and no node sends clients to them. Where
// Kubernetes writes the endpoints, a busy node may do so for a moment after the sleep.
func Gone(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	addresses := map[string]bool{}
	err := env.WaitUntil(ctx, "the pods of "+g.Name+" are gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := Cluster.Client.List(ctx, &pods, client.InNamespace(g.Namespace)); err != nil {
			return false, err
		}
		left := 0
		for i := range pods.Items {
			if pod := &pods.Items[i]; strings.HasPrefix(pod.Name, g.Name+"-") {
				left++
				addresses[pod.Status.PodIP] = true
			}
		}
		return left == 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for address := range addresses {
		if err := Cluster.WaitUnrouted(ctx, address); err != nil {
			t.Fatal(err)
		}
	}
}

// OneServer fails the test unless exactly one pod was made in a namespace.
func OneServer(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	var pods corev1.PodList
	if err := Cluster.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 {
		t.Errorf("%d pods, want 1", len(pods.Items))
	}
}

// ScaleFleet scales a Fleet through its scale subresource, as kubectl does.
func ScaleFleet(ctx context.Context, t *testing.T, key types.NamespacedName, replicas int32) {
	t.Helper()
	f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := Cluster.Client.SubResource("scale").Update(ctx, f, client.WithSubResourceBody(scale)); err != nil {
		t.Fatalf("scale Fleet %s to %d: %v", key, replicas, err)
	}
}

// FreezeSidecar stops a Server's sidecar where it is, until thaw is called or the
// test ends.
func FreezeSidecar(ctx context.Context, t *testing.T, s *v1alpha1.Server) (thaw func()) {
	t.Helper()
	sidecar, err := Cluster.Sidecar(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := sidecar.Pause(); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := sidecar.Resume(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}
