package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

func TestAStatefulSetSleepsAndWakes(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "store", TCP: []int32{7000}, Probe: true, Trigger: true, SleepAfter: time.Second, StatefulSet: true}
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
		if server := stats.Paths[0].Server; server != "store-0" {
			t.Errorf("Pod %s answered, want store-0", server)
		}
		pod := &corev1.Pod{}
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "store-0"}, pod); err != nil {
			t.Fatal(err)
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
}

// What Dormouse makes beside a Service has a longer name than it, and a Service's may have 63
// characters. So the two here differ only in what would be cut off.
func TestTwoServicesWhoseNamesAreAsLongAsMayBe(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	for _, last := range []string{"a", "b"} {
		g := env.Game{Namespace: ns, Name: strings.Repeat("lobby-", 10) + "xy" + last, TCP: []int32{7000}, Probe: true}
		if len(g.Name) != validation.DNS1035LabelMaxLength {
			t.Fatalf("the name has %d characters, want %d", len(g.Name), validation.DNS1035LabelMaxLength)
		}
		suite.Asleep(ctx, t, g)
		stats, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, 7000))
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
		if app := pod.Labels["app"]; app != g.Name {
			t.Errorf("a Pod of %s answered, want one of %s", app, g.Name)
		}
		if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
			t.Error(err)
		}
	}
}

func TestATargetThatIsScaledUpByHandIsServed(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true}
	suite.Asleep(ctx, t, g)
	suite.Scale(ctx, t, g, 1)
	es, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitDirect(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	resolvers, err := suite.Cluster.ResolverAddrs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stats, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, 7000))
	if err != nil {
		t.Fatal(err)
	}
	if stats.Paths[0].Through(resolvers...) {
		t.Error("the client came through a resolver, want it past them")
	}
}

// Ports that come while a service sleeps, and while it is awake, work.
func TestPortsThatAreAddedToAServiceWork(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true, Args: []string{"--tcp=7000,7001,7002"}}
	suite.Asleep(ctx, t, g)
	for i, port := range []int32{7001, 7002} {
		addPort(ctx, t, g, port)
		es, err := suite.Cluster.WaitFor(ctx, g.Key(), "listening on the new port", func(es *v1alpha1.ElasticService) bool {
			return len(es.Status.Ports) == i+2 && env.Condition(es, conditions.EndpointsInSync) == metav1.ConditionTrue && es.Status.ObservedGeneration == es.Generation
		})
		if err != nil {
			t.Fatal(err)
		}
		wait := suite.Cluster.WaitRouted
		if es.Status.Mode == v1alpha1.ModeServe {
			wait = suite.Cluster.WaitDirect
		}
		if err := wait(ctx, es, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := suite.PlayOnce(ctx, "tcp", suite.ClusterIP(ctx, t, g, port)); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
		if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
			t.Fatal(err)
		}
	}
}

func addPort(ctx context.Context, t *testing.T, g env.Game, port int32) {
	t.Helper()
	svc := &corev1.Service{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), svc); err != nil {
		t.Fatal(err)
	}
	original := svc.DeepCopy()
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("added-%d", port), Protocol: corev1.ProtocolTCP, Port: port})
	if err := suite.Cluster.Client.Patch(ctx, svc, client.MergeFrom(original)); err != nil {
		t.Fatal(err)
	}
}

// A target that was awake and now goes on crashing doesn't swallow what clients send: they are
// held, the status says why, and the next version that works serves them.
func TestClientsOfATargetThatCameToCrashAreHeldAndServed(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true, Replicas: 1, Change: func(d *appsv1.Deployment) {
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	}}
	if err := suite.Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
		t.Fatal(err)
	}
	works := setArgs(ctx, t, g, func(args []string) []string { return append(slices.Clone(args), "--no-such-flag") })
	es, err := suite.Cluster.WaitFor(ctx, g.Key(), "said to crash", func(es *v1alpha1.ElasticService) bool {
		up := meta.FindStatusCondition(es.Status.Conditions, conditions.ServerUp)
		return es.Status.Mode == v1alpha1.ModeProxy && up != nil && up.Status == metav1.ConditionFalse && up.Reason == reasons.ServerCrashing
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	p := suite.DialTCP(ctx, t, suite.ClusterIP(ctx, t, g, 7000))
	answered := make(chan error, 1)
	go func() {
		_, err := p.Exchange(ctx)
		answered <- err
	}()
	if _, err := suite.Cluster.WaitFor(ctx, g.Key(), "holding a client", func(es *v1alpha1.ElasticService) bool { return es.Status.Queued == 1 }); err != nil {
		t.Fatal(err)
	}
	setArgs(ctx, t, g, func([]string) []string { return works })
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	suite.Intact(t, "the client that was held", p)
}

// setArgs changes the arguments of a game's container, and gives those that it had.
func setArgs(ctx context.Context, t *testing.T, g env.Game, change func([]string) []string) (before []string) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := suite.Cluster.Client.Get(ctx, g.Key(), d); err != nil {
		t.Fatal(err)
	}
	original := d.DeepCopy()
	c := &d.Spec.Template.Spec.Containers[0]
	before, c.Args = c.Args, change(c.Args)
	if err := suite.Cluster.Client.Patch(ctx, d, client.MergeFrom(original)); err != nil {
		t.Fatal(err)
	}
	return before
}
