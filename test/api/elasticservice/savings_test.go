package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// requesting makes a pod of a Deployment that requests so much.
func (w *world) requesting(set *appsv1.ReplicaSet, cpu, memory string) *corev1.Pod {
	w.t.Helper()
	set = set.DeepCopy()
	set.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
	return w.podOf(set)
}

// slept checks how many seconds a service has been asleep at least, and what that saved.
func slept(least int64, saved *v1alpha1.Saved) check {
	return func(es *v1alpha1.ElasticService) error {
		if diff := cmp.Diff(saved, es.Status.Saved); diff != "" || es.Status.AsleepSeconds < least {
			return fmt.Errorf("asleep for %d s, want %d at least, and saved (-want +got):\n%s", es.Status.AsleepSeconds, least, diff)
		}
		return nil
	}
}

// wantSaved waits until the leader's metrics tell of more seconds asleep of the service lobby, and of CPU saved in the
// namespace.
func (w *world) wantSaved(seconds, cpu float64) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "metrics of what was saved", func(ctx context.Context) error {
		var asleep, cores float64
		for _, o := range cluster.operators {
			times, err1 := counters(ctx, o, "dormouse_elasticservice_asleep_seconds_total")
			sums, err2 := counters(ctx, o, "dormouse_saved_cpu_seconds_total")
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			asleep += times[fmt.Sprintf("dormouse_elasticservice_asleep_seconds_total{name=\"lobby\",namespace=%q}", w.ns)]
			cores += sums[fmt.Sprintf("dormouse_saved_cpu_seconds_total{namespace=%q}", w.ns)]
		}
		if asleep < seconds || cores < cpu {
			return fmt.Errorf("%v s asleep and %v core-seconds, want %v and %v at least", asleep, cores, seconds, cpu)
		}
		return nil
	})
}

func TestEachSleepAddsToWhatAServiceSaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 2)
	d := &appsv1.Deployment{}
	if err := w.read(t.Context(), "lobby", d); err != nil {
		t.Fatal(err)
	}
	set := w.replicaSet(d)
	first := []client.Object{w.requesting(set, "500m", "1Gi"), w.requesting(set, "500m", "1Gi")}
	servers := []gameServer{newServer(), newServer()}
	countPlayers(t, servers...).is(0)
	w.service("lobby")
	w.elastic("lobby", sleepAfter(time.Second), byPlayers(1))
	w.servers("lobby", servers[0])

	es := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), slept(0, nil))
	want := &v1alpha1.AsleepRequests{Replicas: 2, CPU: resource.MustParse("1"), Memory: resource.MustParse("2Gi")}
	if diff := cmp.Diff(want, es.Status.AsleepRequests); diff != "" {
		t.Errorf("asleepRequests (-want +got):\n%s", diff)
	}
	w.servers("lobby")
	for _, pod := range first {
		w.remove(pod)
	}
	// It sleeps, and the leader counts the seconds without a write.
	w.wantSaved(1, 1)
	before := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantSaved(3, 3)
	after := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		t.Errorf("the status of a sleeping service was written:\n%s", diff)
	}

	w.wake(0, resolverToken(t), "lobby")
	es = w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	seconds := es.Status.AsleepSeconds
	check := slept(2, &v1alpha1.Saved{MilliCPUSeconds: 1000 * seconds, MebibyteSeconds: 2048 * seconds})
	if err := check(es); err != nil {
		t.Error(err)
	}

	// The next one is of another size.
	second := w.requesting(set, "3", "512Mi")
	w.servers("lobby", servers[1])
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.servers("lobby")
	w.remove(second)
	w.wantSaved(float64(seconds+2), float64(seconds+6))
	w.wake(0, resolverToken(t), "lobby")
	es = w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	more := es.Status.AsleepSeconds - seconds
	check = slept(seconds+2, &v1alpha1.Saved{MilliCPUSeconds: 1000*seconds + 3000*more, MebibyteSeconds: 2048*seconds + 512*more})
	if err := check(es); err != nil {
		t.Error(err)
	}

	// Who scales it to zero by hand takes pods of which nobody knows what they requested.
	saved := es.Status.Saved
	w.scaleLobby(0)
	es = w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if es.Status.AsleepRequests != nil {
		t.Errorf("asleepRequests is %+v", es.Status.AsleepRequests)
	}
	w.wantSaved(float64(seconds+more+1), 0)
	w.wake(0, resolverToken(t), "lobby")
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy), slept(seconds+more+1, saved))
}
