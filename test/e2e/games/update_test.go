package games

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

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
