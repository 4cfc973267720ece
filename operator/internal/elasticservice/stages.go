package elasticservice

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// wakeTimes are those of one wake from zero. Only a leader that saw the target
// at zero before knows them.
type wakeTimes struct {
	// atZero says that the target was seen there, and stamp is lastWakeTime as
	// it was then: another one is that of a client.
	atZero bool
	stamp  time.Time
	// asked is the first client's.
	asked time.Time
}

// slept notes that the target is at zero.
func (w *wakeTimes) slept(es *v1alpha1.ElasticService) {
	*w = wakeTimes{atZero: true, stamp: microTime(es.Status.LastWakeTime)}
}

// pass takes in what a pass saw, and says whether a wake for a client is done.
func (w *wakeTimes) pass(es *v1alpha1.ElasticService, replicas int32, phase v1alpha1.Phase) bool {
	if replicas == 0 {
		w.slept(es)
		return false
	}
	if !w.atZero {
		return false
	}
	if stamp := microTime(es.Status.LastWakeTime); w.asked.IsZero() && !stamp.Equal(w.stamp) {
		w.asked = stamp
	}
	if phase != v1alpha1.PhaseAwake {
		return false
	}
	w.atZero = false
	return !w.asked.IsZero() // else somebody else scaled the target up
}

// timeWake measures a wake once it is over: now is when a server was seen up,
// and written when the Service's endpoints said so.
func (r *Reconciler) timeWake(ctx context.Context, now, written time.Time, es *v1alpha1.ElasticService, o observed, p plan) {
	m := r.memoryOf(es)
	if o.scale.err != nil || !m.wake.pass(es, o.scale.replicas, p.phase) {
		return
	}
	asked := m.wake.asked
	took := func(stage metrics.Stage, d time.Duration) {
		r.Metrics.WakeTook(es.Namespace, es.Name, es.Spec.Service, stage, d)
	}
	end := now
	if handoff(es) == v1alpha1.HandoffDirect {
		took(metrics.StageHandedOver, written.Sub(now))
		end = written
	}
	took(metrics.StageTotal, end.Sub(asked))

	ctx, cancel := context.WithTimeout(ctx, diagnoseTime)
	defer cancel()
	pods, _, err := r.podsOf(ctx, es, o)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "measure the stages of a wake")
		return
	}
	scheduled, started := podTimes(pods)
	if scheduled.IsZero() || started.IsZero() {
		return // the pods are gone again
	}
	scheduled = within(asked, scheduled, now)
	started = within(scheduled, started, now)
	took(metrics.StageScheduled, scheduled.Sub(asked))
	took(metrics.StageStarted, started.Sub(scheduled))
	took(metrics.StageUp, now.Sub(started))
}

// podTimes are when the first of the pods was scheduled, and when the first of
// them had its containers started, to a second.
func podTimes(pods []corev1.Pod) (scheduled, started time.Time) {
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
				scheduled = earliest(scheduled, c.LastTransitionTime.Time)
			}
		}
		var last time.Time
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running == nil {
				last = time.Time{}
				break
			}
			last = latest(last, s.State.Running.StartedAt.Time)
		}
		started = earliest(started, last)
	}
	return scheduled, started
}

// earliest is the earlier of two times that are known.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// within is t, or the end of the span that it lies beyond.
func within(from, t, to time.Time) time.Time {
	return latest(from, earliest(t, to))
}
