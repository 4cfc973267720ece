package failover

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/devcluster/container"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// Scenario 10: the leading operator is lost during a wake, and another during the
// next sleep. Whoever leads then finishes both, and no client fails.
func TestANewLeaderFinishesWhatAnotherBegan(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, context.Context, container.Container) func(){
		"killed": func(t *testing.T, ctx context.Context, c container.Container) func() {
			if err := c.Kill(ctx); err != nil {
				t.Fatal(err)
			}
			return func() {}
		},
		// It goes on, once another leads, as if it still did.
		"paused": func(t *testing.T, _ context.Context, c container.Container) func() {
			if err := c.Pause(); err != nil {
				t.Fatal(err)
			}
			resume := func() {
				if err := c.Resume(); err != nil {
					t.Error(err)
				}
			}
			t.Cleanup(resume)
			return resume
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, ns := suite.Namespace(t)
			waitPods(ctx, t, env.Operator, 2)
			g := env.Game{
				Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true, Trigger: true,
				Selectorless: true, BootDelay: 2 * time.Second, SleepAfter: 3 * time.Second,
			}
			// A resolver counts a UDP session for two minutes after its end, so the
			// game that is to fall asleep again has none.
			arena := env.Game{Namespace: ns, Name: "arena", UDP: []int32{7001}, Probe: true, BootDelay: 2 * time.Second}
			suite.Asleep(ctx, t, g)
			suite.Asleep(ctx, t, arena)
			leader, container := leading(ctx, t)
			held := play(ctx, "tcp, held", suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000)))
			stays := play(ctx, "udp, held", suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, arena, 7001)))
			waitPhase(ctx, t, g, v1alpha1.PhaseWaking)
			waitPhase(ctx, t, arena, v1alpha1.PhaseWaking)
			undo := lose(t, ctx, container)
			for _, s := range []*session{held, stays} {
				s.exchange(ctx, t)
			}
			// More come while nobody leads.
			load := suite.NewLoad(suite.ClusterIP(ctx, t, g, 7000))
			stop := load.Start(ctx)
			awake(ctx, t, g)
			stop()
			if next, _ := leading(ctx, t); next.Name == leader.Name && name == "paused" {
				t.Errorf("%s leads again, though it was paused all the time", leader.Name)
			}
			undo()
			// Only now may it fall asleep, so that nobody misses that.
			waitPods(ctx, t, env.Operator, 2)
			held.leave(ctx, t)
			waitPhase(ctx, t, g, v1alpha1.PhaseFallingAsleep)
			_, container = leading(ctx, t)
			undo = lose(t, ctx, container)
			// It comes to a service of which nobody can say whether it sleeps.
			late := play(ctx, "tcp, while it falls asleep", suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000)))
			late.exchange(ctx, t)
			stop = load.Start(ctx)
			awake(ctx, t, g)
			stop()
			undo()
			late.leave(ctx, t)
			stays.leave(ctx, t)
			load.Check(t)
			waitPhase(ctx, t, g, v1alpha1.PhaseAsleep)
			waitPods(ctx, t, env.Operator, 2)
		})
	}
}

// leading waits until an operator leads, and gives its pod and container.
func leading(ctx context.Context, t *testing.T) (corev1.Pod, container.Container) {
	t.Helper()
	var leader corev1.Pod
	err := env.WaitUntil(ctx, "an operator leads", func(ctx context.Context) (bool, error) {
		var err error
		leader, err = suite.Cluster.Leader(ctx)
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	container, err := suite.Cluster.Container(leader)
	if err != nil {
		t.Fatal(err)
	}
	return leader, container
}

func awake(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
}
