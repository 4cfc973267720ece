package elasticservice_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// wantReplicas waits until the Deployment lobby wants some replicas.
func (w *world) wantReplicas(want int32) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "Deployment lobby", func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := w.read(ctx, "lobby", d); err != nil {
			return err
		}
		if n := ptr.Deref(d.Spec.Replicas, -1); n != want {
			return fmt.Errorf("%d replicas, want %d", n, want)
		}
		return nil
	})
}

// noneAsleep passes where no target is kept that was put to sleep.
func noneAsleep(es *v1alpha1.ElasticService) error {
	if es.Status.AsleepTarget != nil {
		return fmt.Errorf("asleepTarget is %v", es.Status.AsleepTarget)
	}
	return nil
}

// Whoever edits the target of a sleeping service gets the old one back as it was.
func TestATargetThatIsExchangedInItsSleepIsWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	players := w.awake("lobby", 3, sleepAfter(time.Second), byPlayers(1))
	players.is(0)
	w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantReplicas(0)
	w.servers("lobby")
	w.deployment("next", 0)
	es := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), ready)
	w.edit(es, func() { es.Spec.ScaleTargetRef.Name = "next" })
	w.wantReplicas(3)
	left := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), noneAsleep)
	if since := left.Status.PhaseSince; !since.After(es.Status.PhaseSince.Time) || left.Status.AsleepRequests != nil {
		t.Errorf("the old target's requests of %v are saved since %s, though it runs", left.Status.AsleepRequests, since)
	}
	w.wantEvent("FormerTargetAwake", "Deployment lobby isn't the target any more and was asleep: scaled it from 0 to 3 replicas.")
	if n := w.replicas("next"); n != 0 {
		t.Errorf("the new target has %d replicas, and nobody asked for it", n)
	}
	if n := left.Status.ReplicasBeforeSleep; n != 0 {
		t.Errorf("the new target would be woken with the %d replicas of the old one", n)
	}
}

// One that another ElasticService has by now is that one's to wake.
func TestAnExchangedTargetThatHasAnotherElasticServiceSleepsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	players := w.awake("lobby", 1, sleepAfter(time.Second), byPlayers(1))
	players.is(0)
	w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.servers("lobby")
	w.deployment("next", 0)
	w.service("heir")
	w.elastic("heir", func(es *v1alpha1.ElasticService) { es.Spec.ScaleTargetRef.Name = "lobby" })
	es := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.edit(es, func() { es.Spec.ScaleTargetRef.Name = "next" })
	w.want("lobby", promptly, ready, noneAsleep)
	if n := w.replicas("lobby"); n != 0 {
		t.Errorf("the heir's target has %d replicas, want 0", n)
	}
}

// A person who scales a target to zero gets as many back as there were.
func TestASleepByHandEndsWithAsManyReplicasAsBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.awake("lobby", 3)
	w.scaleLobby(0)
	w.servers("lobby")
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wake(0, resolverToken(t), "lobby")
	w.wantReplicas(3)
}
