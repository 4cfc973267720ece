package e2e

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// Scenario 7: twenty new connections a second, all through falling asleep, waking
// and falling asleep again, and not one of them is refused, reset or unanswered.
//
// While they come the service can't sleep by itself: each new one cancels the
// sleep. So it is put to sleep by hand under them, and by itself in a pause that
// ends in the very moment when its target goes to zero.
func TestTwentyConnectionsASecondThroughSleepsAndWakes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		game env.Game
		// byHand reports whether the target is also scaled to zero under the load. Its
		// pods must go on serving then while nodes learn of it: nobody was there to
		// switch first.
		byHand bool
	}{
		"a Service without a selector": {
			game: env.Game{Selectorless: true},
		},
		"a Service without a selector, with a preStop sleep": {
			game: env.Game{Selectorless: true, PreStop: 5 * time.Second}, byHand: true,
		},
		"a Service with a selector and a preStop sleep": {
			game: env.Game{PreStop: 5 * time.Second}, byHand: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := tc.game
			g.Namespace, g.Name, g.TCP = ns, "lobby", []int32{7000}
			g.Probe, g.Trigger, g.SleepAfter = true, true, 2*time.Second
			suite.Asleep(ctx, t, g)
			l := suite.NewLoad(suite.ClusterIP(ctx, t, g, 7000))

			stop := l.Start(ctx)
			awake(ctx, t, g)
			for range 2 {
				waitPhase(ctx, t, g, v1alpha1.PhaseFallingAsleep)
				waitPhase(ctx, t, g, v1alpha1.PhaseAwake)
			}
			if tc.byHand {
				for range 2 {
					awake(ctx, t, g)
					suite.Scale(ctx, t, g, 0)
					waitWoken(ctx, t, g)
				}
			}
			stop()
			for range 3 {
				waitZero(ctx, t, g)
				stop = l.Start(ctx)
				waitPhase(ctx, t, g, v1alpha1.PhaseAwake)
				waitPhase(ctx, t, g, v1alpha1.PhaseFallingAsleep)
				stop()
			}
			l.Check(t)
		})
	}
}

// A server without a readiness probe counts as ready as soon as its container runs, and this
// one listens five seconds later. Clients are held until then.
func TestAServerThatListensLateRefusesNobody(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Selectorless: true, BootDelay: 5 * time.Second}
	suite.Asleep(ctx, t, g)
	l := suite.NewLoad(suite.ClusterIP(ctx, t, g, 7000))
	stop := l.Start(ctx)
	es, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitDirect(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	stop()
	l.Check(t)
}

func awake(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
}

// waitWoken waits until a client has woken a game that was scaled to zero by
// hand, which may be sooner than Dormouse's leader sees that it was there.
func waitWoken(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	err := env.WaitUntil(ctx, "a client has woken "+g.Name, func(ctx context.Context) (bool, error) {
		d := &appsv1.Deployment{}
		err := suite.Cluster.Client.Get(ctx, g.Key(), d)
		return ptr.Deref(d.Spec.Replicas, 1) > 0 && d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func waitPhase(ctx context.Context, t *testing.T, g env.Game, phase v1alpha1.Phase) {
	t.Helper()
	waitFor(ctx, t, g, string(phase), func(es *v1alpha1.ElasticService) bool { return es.Status.Phase == phase })
}

func waitFor(ctx context.Context, t *testing.T, g env.Game, what string, done func(*v1alpha1.ElasticService) bool) {
	t.Helper()
	if _, err := suite.Cluster.WaitFor(ctx, g.Key(), what, done); err != nil {
		t.Fatal(err)
	}
}

// waitZero returns in the moment in which a game's Deployment is scaled to zero.
func waitZero(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	w, err := suite.Cluster.Client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(g.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", g.Name)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if d, ok := event.Object.(*appsv1.Deployment); ok && ptr.Deref(d.Spec.Replicas, 1) == 0 {
			return
		}
	}
	t.Fatalf("the watch of Deployment %s ended before it was scaled to zero", g.Key())
}
