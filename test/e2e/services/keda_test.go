package services

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/foreign"
	"dormouse.dev/dormouse/test/player"
)

// kedaTime is for the operator's first build, which takes five minutes on two cores.
const kedaTime = 20 * time.Minute

// paused is KEDA's annotation.
const paused = "autoscaling.keda.sh/paused"

// KEDA's own operator leaves a target alone while its service sleeps, and scales it again once it is
// woken; somebody else's pause stays.
func TestKEDARestsWhileAServiceSleeps(t *testing.T) {
	building, cancel := context.WithTimeout(t.Context(), kedaTime)
	defer cancel()
	if err := foreign.KEDA(building, suite.Cluster); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // Not before: the build leaves others little of the processors.
	ctx, ns := suite.Namespace(t)
	t.Cleanup(func() { describeKEDA(t, ns) })
	shop := scaledByKEDA(ctx, t, ns, "shop")
	other := scaledByKEDA(ctx, t, ns, "other")

	suite.Asleep(ctx, t, shop)
	es := restsBeside(ctx, t, shop)
	asleep := generationOf(ctx, t, shop)
	// What nobody has it leave alone, KEDA scales up again, each time it looks.
	for range 2 {
		suite.Scale(ctx, t, other, 0)
		_, err := env.Wait(ctx, suite.Cluster, &appsv1.DeploymentList{}, other.Key(), "scaled up by KEDA", func(d *appsv1.Deployment) bool {
			return *d.Spec.Replicas == 1
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if now := restsBeside(ctx, t, shop); !now.Status.LastSleepTime.Equal(es.Status.LastSleepTime) || generationOf(ctx, t, shop) != asleep {
		t.Errorf("somebody scaled the sleeping target: the service fell asleep at %s, and then at %s", es.Status.LastSleepTime, now.Status.LastSleepTime)
	}

	p := join(ctx, t, shop)
	wantAnnotations(ctx, t, shop, nil)
	waitHPA(ctx, t, shop, true)

	annotate(ctx, t, shop, `"true"`)
	waitHPA(ctx, t, shop, false)
	leave(t, p)
	again, err := suite.Cluster.WaitFor(ctx, shop.Key(), "asleep once more", func(now *v1alpha1.ElasticService) bool {
		return now.Status.Phase == v1alpha1.PhaseAsleep && now.Status.LastSleepTime.After(es.Status.LastSleepTime.Time)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, again, 1); err != nil {
		t.Fatal(err)
	}
	suite.Gone(ctx, t, shop)
	wantAnnotations(ctx, t, shop, map[string]string{paused: "true"})
	p = join(ctx, t, shop)
	wantAnnotations(ctx, t, shop, map[string]string{paused: "true"})
	annotate(ctx, t, shop, "null")
	waitHPA(ctx, t, shop, true)
	leave(t, p)
	restsBeside(ctx, t, shop)
}

// scaledByKEDA makes a game's Deployment and its ScaledObject, and waits until KEDA has taken it up. The
// game has no ElasticService yet.
func scaledByKEDA(ctx context.Context, t *testing.T, ns, name string) env.Game {
	t.Helper()
	g := env.Game{
		Namespace: ns, Name: name, TCP: []int32{7000}, Probe: true, Trigger: true, SleepAfter: time.Second, Replicas: 1,
		ChangeElastic: func(es *v1alpha1.ElasticService) {
			es.Spec.Autoscaler = &v1alpha1.Autoscaler{Kind: v1alpha1.AutoscalerKEDA, Name: name}
		},
	}
	so := scaledObject(g)
	so.Object["spec"] = map[string]any{
		"scaleTargetRef": map[string]any{"name": name}, "minReplicaCount": int64(1), "maxReplicaCount": int64(3), "pollingInterval": int64(1),
		"triggers": []any{map[string]any{"type": "cron", "metadata": map[string]any{
			"timezone": "UTC", "start": "0 0 * * *", "end": "59 23 * * *", "desiredReplicas": "1",
		}}},
	}
	for _, o := range []client.Object{suite.Cluster.Deployment(g), so} {
		if err := suite.Cluster.Client.Create(ctx, o); err != nil {
			t.Fatalf("create %T %s: %v", o, g.Key(), err)
		}
	}
	waitHPA(ctx, t, g, true)
	g.Target = &v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	return g
}

// scaledObject is a game's, without contents.
func scaledObject(g env.Game) *unstructured.Unstructured {
	so := &unstructured.Unstructured{}
	so.SetAPIVersion("keda.sh/v1alpha1")
	so.SetKind("ScaledObject")
	so.SetNamespace(g.Namespace)
	so.SetName(g.Name)
	return so
}

// restsBeside waits until a service sleeps, its ScaledObject is paused for it, and KEDA has taken its
// HorizontalPodAutoscaler away.
func restsBeside(ctx context.Context, t *testing.T, g env.Game) *v1alpha1.ElasticService {
	t.Helper()
	waitHPA(ctx, t, g, false)
	es, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	wantAnnotations(ctx, t, g, map[string]string{paused: "true", wellknown.PausedByAnnotation: string(es.UID)})
	return es
}

// waitHPA waits until KEDA has a HorizontalPodAutoscaler for a game, or has none.
func waitHPA(ctx context.Context, t *testing.T, g env.Game, want bool) {
	t.Helper()
	key := types.NamespacedName{Namespace: g.Namespace, Name: "keda-hpa-" + g.Name}
	what := fmt.Sprintf("it is %t that there is HorizontalPodAutoscaler %s", want, key)
	err := env.WaitUntil(ctx, what, func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, key, &autoscalingv2.HorizontalPodAutoscaler{})
		if apierrors.IsNotFound(err) {
			return !want, err
		}
		return want && err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantAnnotations waits until a game's ScaledObject has these annotations, of those that pause it.
func wantAnnotations(ctx context.Context, t *testing.T, g env.Game, want map[string]string) {
	t.Helper()
	err := env.WaitUntil(ctx, fmt.Sprintf("ScaledObject %s has the annotations %v", g.Key(), want), func(ctx context.Context) (bool, error) {
		so := scaledObject(g)
		if err := suite.Cluster.Client.Get(ctx, g.Key(), so); err != nil {
			return false, err
		}
		got := so.GetAnnotations()
		maps.DeleteFunc(got, func(name, _ string) bool {
			return !strings.HasPrefix(name, paused) && name != wellknown.PausedByAnnotation
		})
		return maps.Equal(got, want), fmt.Errorf("it has %v", got)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// annotate sets KEDA's annotation as a person does, to a value in JSON.
func annotate(ctx context.Context, t *testing.T, g env.Game, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, paused, value)
	if err := suite.Cluster.Client.Patch(ctx, scaledObject(g), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatalf("set the annotation %s of ScaledObject %s to %s: %v", paused, g.Key(), value, err)
	}
}

// generationOf is the version of the spec of a game's Deployment.
func generationOf(ctx context.Context, t *testing.T, g env.Game) int64 {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), d); err != nil {
		t.Fatal(err)
	}
	return d.Generation
}

// join has a player come, and waits until the service is awake. The player stays.
func join(ctx context.Context, t *testing.T, g env.Game) *player.Player {
	t.Helper()
	p := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	waking, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	if _, err := p.Exchange(waking); err != nil {
		t.Fatalf("wake %s: %v", g.Key(), err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	return p
}

func leave(t *testing.T, p *player.Player) {
	t.Helper()
	suite.Intact(t, "the player", p)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// describeKEDA tells of the ScaledObjects, and what KEDA's operator logged last, where the test has
// failed.
func describeKEDA(t *testing.T, ns string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), suite.PlayTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("keda.sh/v1alpha1")
	list.SetKind("ScaledObjectList")
	var pods corev1.PodList
	if err := suite.Cluster.Client.List(ctx, list, client.InNamespace(ns)); err != nil {
		t.Log(err)
	}
	if err := suite.Cluster.Client.List(ctx, &pods, client.InNamespace(foreign.KEDANamespace)); err != nil {
		t.Log(err)
	}
	for i := range list.Items {
		text, err := json.Marshal(list.Items[i].Object)
		t.Logf("ScaledObject %s: %s %v", list.Items[i].GetName(), text, err)
	}
	for i := range pods.Items {
		text, err := suite.Cluster.Log(ctx, pods.Items[i])
		const most = 8 << 10
		t.Logf("KEDA's Pod %s, %s, logged: %s %v", pods.Items[i].Name, pods.Items[i].Status.Phase, text[max(0, len(text)-most):], err)
	}
}
