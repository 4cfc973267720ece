package elasticservice

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// startedPod was scheduled and started at whole seconds.
func startedPod(scheduled, started float64) corev1.Pod {
	return corev1.Pod{Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: fixture.At(scheduled)}}},
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: fixture.At(started)}},
		}}},
	}}
}

// stages is what a registry has of dormouse_wake_seconds: the count and sum of
// each stage.
func stages(t *testing.T, registry *prometheus.Registry) map[string][2]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]float64{}
	for _, family := range families {
		if family.GetName() != "dormouse_wake_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "stage" {
					sum := time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second)).Round(time.Millisecond)
					got[l.GetValue()] = [2]float64{float64(m.GetHistogram().GetSampleCount()), sum.Seconds()}
				}
			}
		}
	}
	return got
}

func TestTheStagesOfAWake(t *testing.T) {
	type seenAt struct {
		at      float64
		woken   float64 // lastWakeTime; 0 is never
		o       planner.Observed
		phase   v1alpha1.Phase
		written float64
	}
	asleep, waking, awake := v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake
	for name, c := range map[string]struct {
		handoff v1alpha1.Handoff
		pods    []corev1.Pod
		passes  []seenAt
		want    map[string][2]float64
		says    string
	}{
		"each once, and their sum is the total": {
			pods: []corev1.Pod{startedPod(11, 12)},
			passes: []seenAt{
				{at: 5, o: seen.Of(0), phase: asleep},
				{at: 10.4, woken: 10.3, o: seen.Of(1), phase: waking},
				{at: 11.4, woken: 11.3, o: seen.Of(1), phase: waking},
				{at: 12.9, woken: 12.3, o: seen.Of(1, seen.UpServer), phase: awake, written: 12.95},
				{at: 13.9, woken: 13.3, o: seen.Of(1, seen.UpServer), phase: awake, written: 13.9},
			},
			want: map[string][2]float64{"scheduled": {1, .7}, "started": {1, 1}, "up": {1, .9}, "handed_over": {1, .05}, "total": {1, 2.65}},
			says: "The wake took 2.65s: a pod had a node after 700ms, its containers were started 1s later, a server was up after 900ms more, and new clients went to it 50ms later.",
		},
		"whole seconds make none of them negative": {
			pods: []corev1.Pod{startedPod(10, 10)},
			passes: []seenAt{
				{at: 5, o: seen.Of(0), phase: asleep},
				{at: 10.4, woken: 10.3, o: seen.Of(1), phase: waking},
				{at: 10.9, woken: 10.3, o: seen.Of(1, seen.UpServer), phase: awake, written: 10.95},
			},
			want: map[string][2]float64{"scheduled": {1, 0}, "started": {1, 0}, "up": {1, .6}, "handed_over": {1, .05}, "total": {1, .65}},
			says: "The wake took 650ms: a pod had a node after 0s, its containers were started 0s later, a server was up after 600ms more, and new clients went to it 50ms later.",
		},
		"the first of several pods counts": {
			pods: []corev1.Pod{startedPod(14, 15), startedPod(11, 16), startedPod(12, 13), {}},
			passes: []seenAt{
				{at: 5, o: seen.Of(0), phase: asleep},
				{at: 20, woken: 10, o: seen.Of(3, seen.UpServer), phase: awake, written: 20},
			},
			want: map[string][2]float64{"scheduled": {1, 1}, "started": {1, 2}, "up": {1, 7}, "handed_over": {1, 0}, "total": {1, 10}},
			says: "The wake took 10s: a pod had a node after 1s, its containers were started 2s later, a server was up after 7s more, and new clients went to it 0s later.",
		},
		"with handoff Never nothing is handed over": {
			handoff: v1alpha1.HandoffNever, pods: []corev1.Pod{startedPod(11, 12)},
			passes: []seenAt{
				{at: 5, o: seen.Of(0), phase: asleep},
				{at: 13, woken: 10, o: seen.Of(1, seen.UpServer), phase: awake, written: 14},
			},
			want: map[string][2]float64{"scheduled": {1, 1}, "started": {1, 1}, "up": {1, 1}, "total": {1, 3}},
			says: "The wake took 3s: a pod had a node after 1s, its containers were started 1s later, a server was up after 1s more.",
		},
		"a person who scales it up is no client": {
			passes: []seenAt{
				{at: 5, woken: 3, o: seen.Of(0), phase: asleep},
				{at: 10, woken: 3, o: seen.Of(1), phase: waking},
				{at: 11, woken: 3, o: seen.Of(1, seen.UpServer), phase: awake, written: 11},
				{at: 12, woken: 12, o: seen.Of(1, seen.UpServer), phase: awake, written: 12},
			},
			want: map[string][2]float64{},
		},
		"a service that was up when this leader came, and lost its server": {
			passes: []seenAt{
				{at: 5, o: seen.Of(1, seen.UpServer), phase: awake, written: 5},
				{at: 10, woken: 10, o: seen.Of(1), phase: waking},
				{at: 11, woken: 11, o: seen.Of(1, seen.UpServer), phase: awake, written: 11},
			},
			want: map[string][2]float64{},
		},
		"pods that are gone again": {
			passes: []seenAt{
				{at: 5, o: seen.Of(0), phase: asleep},
				{at: 11, woken: 10, o: seen.Of(1, seen.UpServer), phase: awake, written: 12},
			},
			want: map[string][2]float64{"handed_over": {1, 1}, "total": {1, 2}},
			says: "The wake took 2s: a server was up after 1s, and new clients went to it 1s later.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			api := &apiServer{pods: c.pods}
			r := &Reconciler{Live: api, Metrics: metrics.NewController(registry)}
			r.Init()
			es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
			if c.handoff != "" {
				es.Spec.Handoff = c.handoff
			}
			for _, p := range c.passes {
				if p.woken != 0 {
					es.Status.LastWakeTime = fixture.Micro(fixture.At(p.woken))
				}
				r.timeWake(context.Background(), &pass{es: es, state: r.stateOf(es), now: fixture.At(p.at), observed: p.o, plan: planner.Plan{Phase: p.phase}, applied: fixture.At(p.written)})
			}
			if diff := cmp.Diff(c.want, stages(t, registry)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := r.stateOf(es).lastWake; (got == nil) != (c.says == "") || got != nil && got.Message != c.says {
				t.Errorf("the status says %+v, want %q", got, c.says)
			}
			if api.lists > 1 {
				t.Errorf("pods were listed %d times, want once at most", api.lists)
			}
		})
	}
}
