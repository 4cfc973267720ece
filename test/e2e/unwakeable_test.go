package e2e

import (
	"context"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// Scenario 14: what can't wake refuses clients soon, and says why.
func TestClientsOfATargetThatCantWakeAreRefusedSoon(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target v1alpha1.ScaleTargetRef
		make   func(ns string) client.Object
		reason string
		says   string
	}{
		"an unknown target": {
			target: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"},
			reason: reasons.TargetNotFound, says: "create it, or correct spec.scaleTargetRef",
		},
		"an unknown kind": {
			target: v1alpha1.ScaleTargetRef{APIVersion: "example.com/v1", Kind: "Lobster", Name: "lobby"},
			reason: reasons.TargetNotFound, says: "knows no kind Lobster",
		},
		"a target without a scale": {
			target: v1alpha1.ScaleTargetRef{APIVersion: "v1", Kind: "ConfigMap", Name: "lobby"},
			make: func(ns string) client.Object {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lobby"}}
			},
			reason: reasons.TargetNotScalable, says: "no scale subresource",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			if c.make != nil {
				if err := suite.Cluster.Client.Create(ctx, c.make(ns)); err != nil {
					t.Fatal(err)
				}
			}
			g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, Probe: true, Target: &c.target}
			if err := suite.Cluster.Create(ctx, g); err != nil {
				t.Fatal(err)
			}
			says(ctx, t, g, conditions.TargetFound, c.reason, c.says)
			es, err := suite.Cluster.WaitPhase(ctx, g.Key(), "", v1alpha1.ModeProxy)
			if err != nil {
				t.Fatal(err)
			}
			if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
				t.Fatal(err)
			}
			udp := suite.DialUDP(ctx, t, suite.ClusterIP(ctx, t, g, 7001))
			if _, err := udp.Send(); err != nil {
				t.Fatal(err)
			}
			// Each of the two resolvers takes three seconds to give up hope, and
			// refuses at once from then on.
			slow := 0
			for range 5 {
				if refusedWithin(ctx, t, g) > 2*time.Second {
					slow++
				}
			}
			if slow > 2 {
				t.Errorf("%d of 5 clients were kept waiting, want 2 at most", slow)
			}
			if s := udp.Stats(); s.Received != 0 || s.Refused != 0 {
				t.Errorf("the UDP player got %d replies and %d refusals, want silence", s.Received, s.Refused)
			}
			if c.reason != reasons.TargetNotFound || c.target.Kind != "Deployment" {
				return
			}
			if err := suite.Cluster.Client.Create(ctx, suite.Cluster.Deployment(g)); err != nil {
				t.Fatal(err)
			}
			servedAnew(ctx, t, g)
		})
	}
}

// Scenario 14: the target goes while clients wait for it.
func TestClientsOfATargetThatIsDeletedAreRefusedSoonAndItHeals(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true, BootDelay: time.Hour}
	suite.Asleep(ctx, t, g)
	held := dialRaw(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseWaking, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	if err := suite.Cluster.Client.Delete(ctx, suite.Cluster.Deployment(g)); err != nil {
		t.Fatal(err)
	}
	endsCleanly(t, held)
	if took := time.Since(deleted); took < time.Second || took > 15*time.Second {
		t.Errorf("the client was sent away %s after its target was deleted, want about 3s", took)
	}
	says(ctx, t, g, conditions.TargetFound, reasons.TargetNotFound, "here is no Deployment", "create it")
	refusedWithin(ctx, t, g)
	g.BootDelay = 0
	if err := suite.Cluster.Client.Create(ctx, suite.Cluster.Deployment(g)); err != nil {
		t.Fatal(err)
	}
	servedAnew(ctx, t, g)
}

// refusedWithin fails unless a new client's connection ends soon and cleanly, and
// gives after how long it did.
func refusedWithin(ctx context.Context, t *testing.T, g env.Game) time.Duration {
	t.Helper()
	began := time.Now()
	c := dialRaw(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	endsCleanly(t, c)
	took := time.Since(began)
	if took > 10*time.Second {
		t.Errorf("the client was refused after %s, want about 3s at most", took)
	}
	return took
}

// servedAnew fails unless a new client is served.
func servedAnew(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	play, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	p := suite.DialTCP(play, t, suite.ClusterIP(ctx, t, g, 7000))
	if _, err := p.Exchange(play); err != nil {
		t.Fatal(err)
	}
	suite.Intact(t, "the player", p)
	serverIsUp(ctx, t, g)
}
