package games

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// Kubernetes' own autoscaler scales a GameType, by the bounds alone where it has no
// metrics, and finds its Pods by the selector.
func TestAHorizontalPodAutoscalerScalesAGameType(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := newGameType(ctx, t, ns, 1)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metaOf(ns, g.Name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: g.Name},
			MinReplicas:    new(int32(2)),
			MaxReplicas:    3,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80))},
				},
			}},
		},
	}
	if err := suite.Cluster.Client.Create(ctx, hpa); err != nil {
		t.Fatal(err)
	}
	waitGameType(ctx, t, g, "scaled to 2", func(gt *v1alpha1.GameType) bool {
		return gt.Spec.Scale != nil && gt.Spec.Scale.Replicas == 2 && settled(gt, 2)
	})
	err := env.WaitUntil(ctx, "the autoscaler finds the Pods", func(ctx context.Context) (bool, error) {
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(hpa), hpa); err != nil {
			return false, err
		}
		able := false
		for _, c := range hpa.Status.Conditions {
			if c.Reason == "InvalidSelector" {
				return false, errors.New(c.Message)
			}
			able = able || c.Type == autoscalingv2.AbleToScale && c.Status == corev1.ConditionTrue
		}
		return able && hpa.Status.CurrentReplicas == 2, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A GameType with both address families is woken over IPv6, and its players of both
// families play through an upgrade.
func TestAGameTypeIsPlayedOverBothFamilies(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{env.GameTCP}, UDP: []int32{env.GameUDP}}
	err := suite.Cluster.CreateGameType(ctx, ns, g.Name, 0, func(s *v1alpha1.GameTypeSpec) {
		s.Service.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	})
	if err != nil {
		t.Fatal(err)
	}
	es, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, es, 2); err != nil {
		t.Fatal(err)
	}
	var players []*player.Player
	for _, family := range []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol} {
		for port, dial := range map[int32]func(context.Context, *testing.T, string) *player.Player{env.GameTCP: suite.DialTCP, env.GameUDP: suite.DialUDP} {
			address, err := suite.Cluster.ClusterIP(ctx, g.Key(), port, family)
			if err != nil {
				t.Fatal(err)
			}
			p := dial(ctx, t, address)
			if _, err := p.Exchange(ctx); err != nil {
				t.Fatalf("%s: %v", address, err)
			}
			players = append(players, p)
		}
	}
	old := serversOf(ctx, t, g)
	playing, stop := context.WithCancel(ctx)
	errs := make([]error, len(players))
	var group sync.WaitGroup
	for i, p := range players {
		group.Go(func() { errs[i] = p.Play(playing, 20*time.Millisecond) })
	}
	editGameType(ctx, t, g, version("2"))
	waitGameType(ctx, t, g, "updated, with an old Server that drains", func(gt *v1alpha1.GameType) bool {
		return settled(gt, 1) && gt.Status.DrainingReplicas == 1
	})
	for name := range old {
		pod := &corev1.Pod{}
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, pod); err != nil {
			t.Fatal(err)
		}
		for _, ip := range pod.Status.PodIPs {
			if err := suite.Cluster.WaitUnrouted(ctx, ip.IP); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, family := range []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol} {
		for network, port := range map[string]int32{"tcp": env.GameTCP, "udp": env.GameUDP} {
			address, err := suite.Cluster.ClusterIP(ctx, g.Key(), port, family)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := suite.PlayOnce(ctx, network, address)
			if err != nil {
				t.Fatal(err)
			}
			if old[stats.Paths[0].Server] != nil {
				t.Errorf("a new player over %s and %s is on Server %s, which drains", network, family, stats.Paths[0].Server)
			}
		}
	}
	stop()
	group.Wait()
	for i, p := range players {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		if err := p.Drain(ctx); err != nil {
			t.Error(err)
		}
		suite.Intact(t, "a player through the upgrade", p)
	}
}
