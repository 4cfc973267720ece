package games

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
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
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// newAutoscaler makes a GameAutoscaler of a GameType with 1 or 2 Servers. It looks each second and
// waits for nothing.
func newAutoscaler(ctx context.Context, t *testing.T, g env.Game, policies ...v1alpha1.AutoscalerPolicy) *v1alpha1.GameAutoscaler {
	t.Helper()
	none := &metav1.Duration{}
	gas := &v1alpha1.GameAutoscaler{
		ObjectMeta: metaOf(g.Namespace, g.Name),
		Spec: v1alpha1.GameAutoscalerSpec{
			TargetRef: v1alpha1.AutoscalerTarget{Name: g.Name}, MaxReplicas: 2, Policies: policies,
			Sync:     v1alpha1.AutoscalerSync{Interval: &metav1.Duration{Duration: time.Second}},
			Behavior: v1alpha1.AutoscalerBehavior{ScaleDown: v1alpha1.AutoscalerScaleDown{Cooldown: none, StabilizationWindow: none}},
		},
	}
	if err := suite.Cluster.Client.Create(ctx, gas); err != nil {
		t.Fatal(err)
	}
	return gas
}

// waitAutoscaler waits until one of a GameAutoscaler's conditions has a reason.
func waitAutoscaler(ctx context.Context, t *testing.T, g env.Game, kind, reason string) {
	t.Helper()
	_, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameAutoscalerList{}, g.Key(), kind+" "+reason, func(gas *v1alpha1.GameAutoscaler) bool {
		c := meta.FindStatusCondition(gas.Status.Conditions, kind)
		return gas.Status.ObservedGeneration == gas.Generation && c != nil && c.Reason == reason
	})
	if err != nil {
		t.Fatal(err)
	}
}

func scaledTo(ctx context.Context, t *testing.T, g env.Game, replicas int32) {
	t.Helper()
	waitGameType(ctx, t, g, fmt.Sprintf("scaled to %d", replicas), func(gt *v1alpha1.GameType) bool {
		return gt.Spec.Scale != nil && gt.Spec.Scale.Replicas == replicas && settled(gt, replicas)
	})
}

// A Server is added when players come, and the one on which nobody plays goes when they have left.
func TestAGameAutoscalerFollowsItsPlayers(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]v1alpha1.AutoscalerPolicy{
		"a spare Server": {Name: "spare", Buffer: &v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(1))}},
		"the load":       {Name: "load", ActivePlayers: &v1alpha1.ActivePlayersPolicy{MaxPlayersPerServer: new(int32(3))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := newGameType(ctx, t, ns, 1)
			first := serversOf(ctx, t, g)
			newAutoscaler(ctx, t, g, policy)
			waitAutoscaler(ctx, t, g, conditions.Active, reasons.PoliciesEvaluated)
			for _, s := range first {
				if err := suite.Cluster.SetPlayers(ctx, s, 3); err != nil {
					t.Fatal(err)
				}
			}
			scaledTo(ctx, t, g, 2)
			for name, s := range serversOf(ctx, t, g) {
				if first[name] == nil {
					continue
				}
				if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
					t.Fatal(err)
				}
			}
			scaledTo(ctx, t, g, 1)
		})
	}
}

// A webhook of either format says how many Servers there are; one that fails changes nothing, and
// what it asks for beyond the bounds is bounded.
func TestAWebhookScalesAGameType(t *testing.T) {
	t.Parallel()
	for _, format := range []v1alpha1.WebhookFormat{v1alpha1.WebhookDormouse, v1alpha1.WebhookAgones} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := newGameType(ctx, t, ns, 1)
			decider := env.Game{Namespace: ns, Name: "decider", TCP: []int32{7000}, Replicas: 1, Probe: true}
			for _, o := range []client.Object{suite.Cluster.Deployment(decider), &corev1.Service{
				ObjectMeta: metaOf(ns, decider.Name),
				Spec: corev1.ServiceSpec{
					Selector: map[string]string{"app": decider.Name},
					Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
				},
			}} {
				if err := suite.Cluster.Client.Create(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
			gas := newAutoscaler(ctx, t, g, v1alpha1.AutoscalerPolicy{Name: "ask", Webhook: &v1alpha1.WebhookPolicy{
				Service: &v1alpha1.WebhookService{Name: decider.Name, Port: 80, Path: "/scale?replicas=2"}, Format: format,
			}})
			scaledTo(ctx, t, g, 2)
			ask := func(path string) {
				t.Helper()
				before := gas.DeepCopy()
				gas.Spec.Policies[0].Webhook.Service.Path = path
				if err := suite.Cluster.Client.Patch(ctx, gas, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
			}
			ask("/scale?status=500")
			waitAutoscaler(ctx, t, g, conditions.Active, "WebhookBadStatus")
			waitAutoscaler(ctx, t, g, conditions.Active, "WebhookCircuitOpen")
			scaledTo(ctx, t, g, 2)
			ask("/scale?replicas=9000")
			waitAutoscaler(ctx, t, g, conditions.Limited, reasons.TooManyReplicas)
			scaledTo(ctx, t, g, 2)
			ask("/scale?replicas=0")
			waitAutoscaler(ctx, t, g, conditions.Limited, reasons.TooFewReplicas)
			scaledTo(ctx, t, g, 1)
		})
	}
}

// A schedule wakes a game that sleeps when its window opens, and says until when it keeps it awake.
func TestAScheduleWakesAGameType(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{env.GameTCP}, UDP: []int32{env.GameUDP}}
	err := suite.Cluster.CreateGameType(ctx, ns, g.Name, 0, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Second}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	// Windows of a minute that begin each minute are one that doesn't end.
	gas := newAutoscaler(ctx, t, g, v1alpha1.AutoscalerPolicy{Name: "always", Schedule: &v1alpha1.SchedulePolicy{
		TimeWindow: v1alpha1.TimeWindow{Cron: "* * * * *", Duration: metav1.Duration{Duration: 2 * time.Minute}}, Replicas: 1, Wake: true,
	}})
	scaledTo(ctx, t, g, 1)
	_, err = env.Wait(ctx, suite.Cluster, &v1alpha1.GameAutoscalerList{}, g.Key(), "keeps it awake", func(gas *v1alpha1.GameAutoscaler) bool {
		return gas.Status.KeepAwakeUntil != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	es, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody plays, for five times as long as the game may be idle, and yet it stays awake.
	slept, since := es.Status.LastSleepTime, time.Now()
	err = env.WaitUntil(ctx, "awake for a while", func(ctx context.Context) (bool, error) {
		if err := suite.Cluster.Client.Get(ctx, g.Key(), es); err != nil {
			return false, err
		}
		if es.Status.Phase != v1alpha1.PhaseAwake || !es.Status.LastSleepTime.Equal(slept) {
			return false, fmt.Errorf("it is %s, and fell asleep at %v", es.Status.Phase, es.Status.LastSleepTime)
		}
		return time.Since(since) > 5*time.Second, nil
	})
	if err != nil {
		t.Error(err)
	}
	// Without its autoscaler it sleeps.
	if err := suite.Cluster.Client.Delete(ctx, gas); err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
}

// A forecast that has learnt wakes a game that sleeps. What it has learnt is given to it as an earlier
// leader would have left it in the status: that five players came in each hour of the last two weeks.
func TestAForecastWakesAGameType(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{env.GameTCP}, UDP: []int32{env.GameUDP}}
	gas := newAutoscaler(ctx, t, g, v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{Wake: true}})
	waitAutoscaler(ctx, t, g, conditions.Active, reasons.TargetNotFound)
	if err := suite.Cluster.Client.Get(ctx, g.Key(), gas); err != nil {
		t.Fatal(err)
	}
	before := gas.DeepCopy()
	gas.Status.Policies = []v1alpha1.AutoscalerPolicyStatus{{Name: "usual", Memory: twoWeeksOf(t, 5)}}
	if err := suite.Cluster.Client.Status().Patch(ctx, gas, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	// Once the operator has seen a later change it has seen that, too.
	before = gas.DeepCopy()
	gas.Spec.Sync.Interval = &metav1.Duration{Duration: 2 * time.Second}
	if err := suite.Cluster.Client.Patch(ctx, gas, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	_, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameAutoscalerList{}, g.Key(), "seen by the operator", func(seen *v1alpha1.GameAutoscaler) bool {
		return seen.Status.ObservedGeneration == gas.Generation
	})
	if err != nil {
		t.Fatal(err)
	}
	err = suite.Cluster.CreateGameType(ctx, ns, g.Name, 0, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Second}}
	})
	if err != nil {
		t.Fatal(err)
	}
	scaledTo(ctx, t, g, 1)
	_, err = env.Wait(ctx, suite.Cluster, &v1alpha1.GameAutoscalerList{}, g.Key(), "expects players", func(gas *v1alpha1.GameAutoscaler) bool {
		return len(gas.Status.Policies) == 1 && gas.Status.Policies[0].Reason == reasons.PlayersExpected && gas.Status.KeepAwakeUntil != nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// twoWeeksOf is a forecast's memory of so many players in each hour of the last two weeks of the six
// that it has.
func twoWeeksOf(t *testing.T, players uint16) string {
	t.Helper()
	var memory struct {
		Version      uint8
		Peaks        [7 * 24][6]uint16
		Hour         int64
		Peak         uint16
		Expected     uint8
		Right, Wrong uint16
		Room         uint32
	}
	memory.Version = 1
	for hour := range memory.Peaks {
		memory.Peaks[hour][0], memory.Peaks[hour][1] = players+1, players+1
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.BigEndian, memory); err != nil {
		t.Fatal(err)
	}
	return base64.RawStdEncoding.EncodeToString(b.Bytes())
}
