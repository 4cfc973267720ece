// Package e2e plays against Dormouse on a real Kubernetes: real kubelets,
// containers and kube-proxy, and players in a network namespace of their own.
// Nothing in it reads Dormouse's code beyond its API.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// Timeouts of what tests wait for.
const (
	setupTimeout = 8 * time.Minute
	testTimeout  = 3 * time.Minute
	// playTimeout covers a wake: a container's start and kubelet's probe.
	playTimeout = 30 * time.Second
)

var cluster *env.Env

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	var err error
	cluster, err = env.Local(ctx, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring up the cluster:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// newNamespace makes a namespace that goes with the test, and gives a context
// that ends before the test's time is up.
func newNamespace(t *testing.T) (context.Context, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := cluster.Client.Create(ctx, ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if t.Failed() {
			describe(ctx, t, ns.Name)
		}
		if err := cluster.Client.Delete(ctx, ns); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ctx, ns.Name
}

// asleep makes a game and waits until the resolver stands in for it.
func asleep(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	if err := cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	es, err := cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.WaitRouted(ctx, es, max(len(g.Families), 1)); err != nil {
		t.Fatal(err)
	}
}

// clusterIP is the address of a game's port inside the cluster.
func clusterIP(ctx context.Context, t *testing.T, g env.Game, port int32) string {
	t.Helper()
	address, err := cluster.ClusterIP(ctx, g.Key(), port, corev1.IPv4Protocol)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func nodePort(ctx context.Context, t *testing.T, g env.Game, port int32, node int) string {
	t.Helper()
	address, err := cluster.NodePort(ctx, g.Key(), port, node)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func dialTCP(ctx context.Context, t *testing.T, address string) *player.Player {
	t.Helper()
	p, err := player.DialTCP(ctx, address, player.Options{Dial: cluster.DialPlayer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func dialUDP(ctx context.Context, t *testing.T, address string) *player.Player {
	t.Helper()
	p, err := player.DialUDP(ctx, address, player.Options{Dial: cluster.DialPlayer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// intact fails the test unless nothing of a player's session was lost, changed,
// or moved.
func intact(t *testing.T, who string, p *player.Player) {
	t.Helper()
	if err := p.Stats().Intact(); err != nil {
		t.Errorf("%s: %v", who, err)
	}
}

// describe tells what was there when a test failed.
func describe(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	text, err := cluster.Describe(ctx, namespace)
	if err != nil {
		t.Logf("describe namespace %s: %v", namespace, err)
	}
	t.Log(text)
}
