package services

import (
	"context"
	"errors"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/foreign"
)

// rolloutsTime is for the controller's first build, which takes minutes.
const rolloutsTime = 15 * time.Minute

// Argo's own controller makes the Pods.
func TestAnArgoRolloutSleepsAndWakes(t *testing.T) {
	t.Parallel()
	building, cancel := context.WithTimeout(t.Context(), rolloutsTime)
	defer cancel()
	if err := foreign.ArgoRollouts(building, suite.Cluster); err != nil {
		t.Fatal(err)
	}
	ctx, ns := suite.Namespace(t)
	g := env.Game{
		Namespace: ns, Name: "shop", TCP: []int32{7000}, Probe: true, Trigger: true, SleepAfter: time.Second,
		Target: &v1alpha1.ScaleTargetRef{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "shop"},
	}
	if err := foreign.Rollout(ctx, suite.Cluster, g); err != nil {
		t.Fatal(err)
	}
	suite.Asleep(ctx, t, g)
	address := suite.ClusterIP(ctx, t, g, 7000)
	var slept time.Time
	for range 2 {
		stats, err := suite.PlayOnce(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := stats.Intact(); err != nil {
			t.Error(err)
		}
		pod := &corev1.Pod{}
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: stats.Paths[0].Server}, pod); err != nil {
			t.Fatal(err)
		}
		if pod.Labels["rollouts-pod-template-hash"] == "" {
			t.Errorf("Pod %s answered with the labels %v, want one of a Rollout", pod.Name, pod.Labels)
		}
		es, err := suite.Cluster.WaitFor(ctx, g.Key(), "asleep once more", func(es *v1alpha1.ElasticService) bool {
			return es.Status.Phase == v1alpha1.PhaseAsleep && es.Status.LastSleepTime != nil && es.Status.LastSleepTime.After(slept)
		})
		if err != nil {
			t.Fatal(err)
		}
		slept = es.Status.LastSleepTime.Time
		if err := errors.Join(suite.Cluster.WaitRouted(ctx, es, 1), suite.Cluster.WaitUnrouted(ctx, pod.Status.PodIP)); err != nil {
			t.Fatal(err)
		}
	}
	rollout := &unstructured.Unstructured{}
	rollout.SetAPIVersion(g.Target.APIVersion)
	rollout.SetKind(g.Target.Kind)
	rollout.SetNamespace(ns)
	rollout.SetName(g.Name)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
	if err := suite.Cluster.Client.SubResource("scale").Update(ctx, rollout, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Error(err)
	}
}
