package games

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// A Server in no Fleet sleeps and wakes by itself: an ElasticService that names it scales it to zero
// once nobody plays, and a player brings the same Server back.
func TestAServerSleepsAndWakes(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", Selectorless: true, TCP: []int32{env.GameTCP}, UDP: []int32{env.GameUDP}, SleepAfter: 3 * time.Second, IdlePlayers: true}
	g.Target = &v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Server", Name: g.Name}
	s, err := suite.Cluster.CreateServer(ctx, ns, g.Name, suite.Cluster.ServerSpec())
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	var now *v1alpha1.Server
	for range 2 {
		if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
			t.Fatal(err)
		}
		if _, err := suite.Cluster.WaitState(ctx, g.Key(), v1alpha1.ServerStopped); err != nil {
			t.Fatal(err)
		}
		stats, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, env.GameTCP))
		if err != nil {
			t.Fatal(err)
		}
		if err := stats.Intact(); err != nil {
			t.Error(err)
		}
		if now, err = suite.Cluster.WaitState(ctx, g.Key(), v1alpha1.ServerReady); err != nil {
			t.Fatal(err)
		}
		if now.UID != s.UID {
			t.Errorf("another Server came")
		}
	}
	// Somebody who plays keeps it awake.
	setPlayers(ctx, t, now, 1)
	stays(ctx, t, now, 5*time.Second)
	setPlayers(ctx, t, now, 0)
	if _, err := suite.Cluster.WaitState(ctx, g.Key(), v1alpha1.ServerStopped); err != nil {
		t.Fatal(err)
	}
}

// A game that falls asleep in the middle of an update to a version that can't start wakes with the
// version that can.
func TestABrokenVersionCostsNoWake(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "arena"}
	err := suite.Cluster.CreateGameType(ctx, ns, g.Name, 1, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Second}}
	})
	if err != nil {
		t.Fatal(err)
	}
	waitGameType(ctx, t, g, "Ready", func(gt *v1alpha1.GameType) bool { return gt.Status.CurrentRevision != nil })
	editGameType(ctx, t, g, func(s *v1alpha1.GameTypeSpec) { s.Template.Spec.Template.Spec.Containers[0].Image = "missing:1" })
	waitGameType(ctx, t, g, "being updated", func(gt *v1alpha1.GameType) bool { return gt.Status.UpdateRevision.Number == 2 })
	for range 2 {
		if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
			t.Fatal(err)
		}
		stats, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, env.GameTCP))
		if err != nil {
			t.Fatalf("who wakes the game isn't served: %v", err)
		}
		if err := stats.Intact(); err != nil {
			t.Error(err)
		}
	}
	waitGameType(ctx, t, g, "still not updated", func(gt *v1alpha1.GameType) bool {
		return gt.Status.CurrentRevision.Number == 1 && gt.Status.UpdateRevision.Number == 2
	})
}
