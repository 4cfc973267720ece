package games

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// ready reports whether a Fleet has so many Servers, all ready, and no more than that
// are on their way out.
func ready(n int32) func(*v1alpha1.Fleet) bool {
	return func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == n && f.Status.ReadyReplicas == n && f.Status.DrainingReplicas == 0 && f.Status.ObservedGeneration == f.Generation
	}
}

// Scenario 15: a Pod that is killed is replaced.
func TestAKilledPodIsReplaced(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	key := types.NamespacedName{Namespace: ns, Name: "lobbies"}
	if _, err := suite.Cluster.CreateFleet(ctx, ns, key.Name, 3, suite.Cluster.ServerSpec()); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, key, "3 ready", ready(3)); err != nil {
		t.Fatal(err)
	}
	servers, err := suite.Cluster.Servers(ctx, ns, key.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		pod := &corev1.Pod{}
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
			t.Fatal(err)
		}
		if err := suite.Cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		if err := suite.Cluster.WaitGone(ctx, pod); err != nil {
			t.Fatal(err)
		}
		break
	}
	// The Fleet's own count may not know of the death yet.
	pods := &corev1.PodList{}
	if err := env.WaitUntil(ctx, "three Pods are ready", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.List(ctx, pods, client.InNamespace(ns))
		running := 0
		for i := range pods.Items {
			if podReady(&pods.Items[i]) {
				running++
			}
		}
		return running == 3, err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, key, "3 ready", ready(3)); err != nil {
		t.Fatal(err)
	}
	now, err := suite.Cluster.Servers(ctx, ns, key.Name)
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 3 || len(now) != 3 {
		t.Errorf("there are %d Pods and %d Servers, want 3 of each", len(pods.Items), len(now))
	}
}

// Scenarios 16 and 17: of five Servers three have players when the Fleet goes to
// zero. Two go at once, the others when their players have left, and a scale-up
// takes those back that still wait.
func TestPlayersOutlastAScaleDown(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	key := types.NamespacedName{Namespace: ns, Name: "lobbies"}
	if _, err := suite.Cluster.CreateFleet(ctx, ns, key.Name, 5, suite.Cluster.ServerSpec()); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitFleet(ctx, key, "5 ready", ready(5)); err != nil {
		t.Fatal(err)
	}
	servers, err := suite.Cluster.Servers(ctx, ns, key.Name)
	if err != nil {
		t.Fatal(err)
	}
	var occupied, empty []*v1alpha1.Server
	for _, s := range servers {
		if len(occupied) == 3 {
			empty = append(empty, s)
			continue
		}
		if err := suite.Cluster.SetPlayers(ctx, s, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := suite.Cluster.WaitServer(ctx, client.ObjectKeyFromObject(s), "occupied", func(s *v1alpha1.Server) bool {
			return s.Status.Players != nil && s.Status.Players.Current == 2 && !s.Status.DeletionAllowed
		}); err != nil {
			t.Fatal(err)
		}
		occupied = append(occupied, s)
	}
	suite.ScaleFleet(ctx, t, key, 0)
	for _, s := range empty {
		if err := suite.Cluster.WaitGone(ctx, s); err != nil {
			t.Error(err)
		}
	}
	if _, err := suite.Cluster.WaitFleet(ctx, key, "0 with 3 that drain", func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == 0 && f.Status.DrainingReplicas == 3 && f.Status.Players == 6
	}); err != nil {
		t.Fatal(err)
	}
	for i, s := range occupied[:2] {
		if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
			t.Fatal(err)
		}
		if err := suite.Cluster.WaitGone(ctx, s); err != nil {
			t.Error(err)
		}
		left, err := suite.Cluster.Servers(ctx, ns, key.Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) != 2-i {
			t.Errorf("there are %d Servers left, want the %d whose players are there", len(left), 2-i)
		}
	}
	last := occupied[2]
	suite.ScaleFleet(ctx, t, key, 1)
	if _, err := suite.Cluster.WaitFleet(ctx, key, "1 ready, taken back", ready(1)); err != nil {
		t.Fatal(err)
	}
	s, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(last), v1alpha1.ServerReady)
	if err != nil {
		t.Fatal(err)
	}
	if s.UID != last.UID || s.Status.Players.Current != 2 || s.Spec.Drain {
		t.Errorf("the Server that was taken back has %d players and drain %t; want 2 and false", s.Status.Players.Current, s.Spec.Drain)
	}
	// A new template leaves it alone, unless the Fleet is to roll. Then another one takes its
	// place, and it goes when its players have left.
	editFleet(ctx, t, key, func(f *v1alpha1.FleetSpec) {
		game := &f.Template.Spec.Template.Spec.Containers[0]
		game.Env = append(game.Env, corev1.EnvVar{Name: "VERSION", Value: "2"})
	})
	if _, err := suite.Cluster.WaitFleet(ctx, key, "outdated", func(f *v1alpha1.Fleet) bool {
		c := meta.FindStatusCondition(f.Status.Conditions, conditions.Updated)
		return f.Status.Replicas == 1 && f.Status.UpdatedReplicas == 0 && c.Reason == reasons.OnDelete
	}); err != nil {
		t.Fatal(err)
	}
	editFleet(ctx, t, key, func(f *v1alpha1.FleetSpec) { f.UpdateStrategy = v1alpha1.FleetUpdateRolling })
	if _, err := suite.Cluster.WaitFleet(ctx, key, "updated, while the old Server drains", func(f *v1alpha1.Fleet) bool {
		return f.Status.ReadyReplicas == 1 && f.Status.UpdatedReplicas == 1 && f.Status.DrainingReplicas == 1 && f.Status.Players == 2 &&
			meta.IsStatusConditionTrue(f.Status.Conditions, conditions.Updated)
	}); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitGone(ctx, s); err != nil {
		t.Error(err)
	}
}

// editFleet changes a Fleet as its owner does.
func editFleet(ctx context.Context, t *testing.T, key types.NamespacedName, change func(*v1alpha1.FleetSpec)) {
	t.Helper()
	now := &v1alpha1.Fleet{}
	if err := suite.Cluster.Client.Get(ctx, key, now); err != nil {
		t.Fatal(err)
	}
	changed := now.DeepCopy()
	change(&changed.Spec)
	if err := suite.Cluster.Client.Patch(ctx, changed, client.MergeFrom(now)); err != nil {
		t.Fatal(err)
	}
}
