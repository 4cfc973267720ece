package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/player"
)

// paths are the ways to a Service's address.
var paths = map[string]func(context.Context, *testing.T, env.Game, int32) string{
	"by ClusterIP": suite.ClusterIP,
	"by NodePort of node 1": func(ctx context.Context, t *testing.T, g env.Game, port int32) string {
		return suite.NodePort(ctx, t, g, port, 1)
	},
	"by NodePort of node 2": func(ctx context.Context, t *testing.T, g env.Game, port int32) string {
		return suite.NodePort(ctx, t, g, port, 2)
	},
}

// Scenario 1.
func TestTheFirstTCPClientIsServedOnItsConnection(t *testing.T) {
	t.Parallel()
	for name, address := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Type: corev1.ServiceTypeNodePort, Probe: true}
			suite.Asleep(ctx, t, g)
			play, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
			defer cancel()
			p := suite.DialTCP(play, t, address(ctx, t, g, 7000))
			if _, err := p.Exchange(play); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if _, err := p.Exchange(play); err != nil {
					t.Fatal(err)
				}
			}
			suite.Intact(t, "the player", p)
			suite.OneServer(ctx, t, ns)
		})
	}
}

// Scenario 2.
func TestUDPDatagramsArriveInOrderFromOneSource(t *testing.T) {
	t.Parallel()
	for name, address := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := env.Game{Namespace: ns, Name: "arena", UDP: []int32{7000}, Type: corev1.ServiceTypeNodePort}
			suite.Asleep(ctx, t, g)
			play, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
			defer cancel()
			p := suite.DialUDP(play, t, address(ctx, t, g, 7000))
			for range 3 {
				if _, err := p.Send(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Drain(play); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if _, err := p.Exchange(play); err != nil {
					t.Fatal(err)
				}
			}
			suite.Intact(t, "the player", p)
			suite.OneServer(ctx, t, ns)
		})
	}
}

// Scenario 3.
func TestTwoHundredClientsAtOnceWakeOneServerOnce(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true}
	suite.Asleep(ctx, t, g)
	address := suite.ClusterIP(ctx, t, g, 7000)
	play, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	var group sync.WaitGroup
	errs := make(chan error, 200)
	started := time.Now()
	for range 200 {
		group.Go(func() {
			p, err := player.DialTCP(play, address, player.Options{Dial: suite.Cluster.DialPlayer})
			if err != nil {
				errs <- err
				return
			}
			defer func() { _ = p.Close() }()
			if _, err := p.Exchange(play); err != nil {
				errs <- err
				return
			}
			if err := p.Stats().Intact(); err != nil {
				errs <- err
			}
		})
	}
	group.Wait()
	took := time.Since(started)
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	suite.OneServer(ctx, t, ns)
	// One write by all the calls: the generation counts the spec's versions.
	d := &appsv1.Deployment{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), d); err != nil {
		t.Fatal(err)
	}
	if d.Generation != 2 {
		t.Errorf("the Deployment was written %d times after it was made, want once", d.Generation-1)
	}
	// One call at a time, however many clients wait. Until it sees the service
	// wake, a resolver calls again for those who came after its last call, which
	// alone would stop a sleep, but no more than once in 50 ms.
	resolvers, err := suite.Cluster.Metrics(ctx, "dormouse-resolver", "dormouse_resolver_wake_calls_total", map[string]string{"namespace": ns})
	if err != nil {
		t.Fatal(err)
	}
	if len(resolvers) == 0 {
		t.Fatal("no resolver counts wake calls")
	}
	for pod, calls := range resolvers {
		if most := 2 + 20*took.Seconds(); calls > most {
			t.Errorf("resolver %s made %.0f wake calls in %s, want at most %.0f", pod, calls, took, most)
		}
	}
	// The status says where the time went.
	es, err := suite.Cluster.WaitFor(ctx, g.Key(), "a last wake in the status", func(es *v1alpha1.ElasticService) bool { return es.Status.LastWake != nil })
	if err != nil {
		t.Fatal(err)
	}
	last := es.Status.LastWake
	if last.Scheduled == nil || last.Started == nil || last.HandedOver == nil {
		t.Fatalf("stages are missing: %+v", last)
	}
	if sum := last.Scheduled.Duration + last.Started.Duration + last.Up.Duration + last.HandedOver.Duration; sum != last.Took.Duration {
		t.Errorf("the stages are %s together, want %s: %+v", sum, last.Took.Duration, last)
	}
	if asked := last.Asked.Time; asked.Before(started.Add(-time.Second)) || asked.After(started.Add(took)) {
		t.Errorf("the first client asked at %s by the status, between %s and %s in truth", asked, started, started.Add(took))
	}
}

// Scenario 11.
func TestEqualNamesInTwoNamespacesAreTwoServices(t *testing.T) {
	t.Parallel()
	ctx, first := suite.Namespace(t)
	_, second := suite.Namespace(t)
	woken := env.Game{Namespace: first, Name: "lobby", TCP: []int32{7000}}
	other := env.Game{Namespace: second, Name: "lobby", TCP: []int32{7000}}
	suite.Asleep(ctx, t, woken)
	suite.Asleep(ctx, t, other)
	p := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, woken, 7000))
	if _, err := p.Exchange(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, woken.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	es := &v1alpha1.ElasticService{}
	if err := suite.Cluster.Client.Get(ctx, other.Key(), es); err != nil {
		t.Fatal(err)
	}
	if es.Status.Phase != v1alpha1.PhaseAsleep || es.Status.LastWakeTime != nil {
		t.Errorf("the other service has status %+v, want one that never woke", es.Status)
	}
	var pods corev1.PodList
	if err := suite.Cluster.Client.List(ctx, &pods, client.InNamespace(second)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) > 0 {
		t.Errorf("the other service has %d pods, want none", len(pods.Items))
	}
}

// Scenario 12, over both address families.
func TestEveryPortWorksAsleepAndAwake(t *testing.T) {
	t.Parallel()
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		for _, first := range []string{"tcp 7000", "udp 7001", "tcp 7002"} {
			t.Run(fmt.Sprintf("%s, woken by %s", family, first), func(t *testing.T) {
				t.Parallel()
				ctx, ns := suite.Namespace(t)
				g := env.Game{
					Namespace: ns, Name: "lobby", TCP: []int32{7000, 7002}, UDP: []int32{7001}, Probe: true,
					Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
				}
				suite.Asleep(ctx, t, g)
				everyPort(ctx, t, g, family, first)
				if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
					t.Fatal(err)
				}
				everyPort(ctx, t, g, family, first)
			})
		}
	}
}

// everyPort plays on each port, on the one named first before the others.
func everyPort(ctx context.Context, t *testing.T, g env.Game, family corev1.IPFamily, first string) {
	t.Helper()
	order := []string{first}
	for _, p := range []string{"tcp 7000", "udp 7001", "tcp 7002"} {
		if p != first {
			order = append(order, p)
		}
	}
	for _, name := range order {
		var network string
		var port int32
		if _, err := fmt.Sscanf(name, "%s %d", &network, &port); err != nil {
			t.Fatal(err)
		}
		address, err := suite.Cluster.ClusterIP(ctx, g.Key(), port, family)
		if err != nil {
			t.Fatal(err)
		}
		dial := suite.DialTCP
		if network == "udp" {
			dial = suite.DialUDP
		}
		p := dial(ctx, t, address)
		for range 3 {
			if _, err := p.Exchange(ctx); err != nil {
				t.Fatalf("%s over %s: %v", name, family, err)
			}
		}
		suite.Intact(t, name, p)
	}
}
