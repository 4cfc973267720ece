// Package wakestages measures how long the stages of a wake from zero take. Only a leader that
// saw the target at zero before knows when the wake began; otherwise it isn't counted. The
// package reads nothing: the controller gives it what it saw.
package wakestages

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/times"
)

// Wake has the times of one wake from zero. Only a leader that saw the target at zero before
// knows them.
type Wake struct {
	// atZero is set once the target was seen at zero. Stamp is lastWakeTime as it was then: a
	// different one is a client's.
	atZero bool
	stamp  time.Time
	// asked is when the first client asked.
	asked time.Time
}

// Slept notes that the target is at zero.
func (w *Wake) Slept(es *v1alpha1.ElasticService) {
	*w = Wake{atZero: true, stamp: times.Micro(es.Status.LastWakeTime)}
}

// Pass takes in what a pass saw, and reports whether a client's wake is done.
func (w *Wake) Pass(es *v1alpha1.ElasticService, replicas int32, phase v1alpha1.Phase) bool {
	if replicas == 0 {
		w.Slept(es)
		return false
	}
	if !w.atZero {
		return false
	}
	if stamp := times.Micro(es.Status.LastWakeTime); w.asked.IsZero() && !stamp.Equal(w.stamp) {
		w.asked = stamp
	}
	if phase != v1alpha1.PhaseAwake {
		return false
	}
	w.atZero = false
	return !w.asked.IsZero() // otherwise somebody else scaled the target up
}

// HandedOver measures the stages that end with a server that was up at now, and with endpoints
// that were written at applied.
func (w *Wake) HandedOver(to *metrics.Controller, es *v1alpha1.ElasticService, now, applied time.Time) {
	end := now
	if spec.Handoff(es) == v1alpha1.HandoffDirect {
		to.WakeTook(es.Namespace, es.Name, es.Spec.Service, metrics.StageHandedOver, applied.Sub(now))
		end = applied
	}
	to.WakeTook(es.Namespace, es.Name, es.Spec.Service, metrics.StageTotal, end.Sub(w.asked))
}

// Started measures the stages that the pods show, of a wake whose server was up at now.
func (w *Wake) Started(to *metrics.Controller, es *v1alpha1.ElasticService, now time.Time, pods []corev1.Pod) {
	scheduled, started := podTimes(pods)
	if scheduled.IsZero() || started.IsZero() {
		return // the pods are gone again
	}
	scheduled = times.Within(w.asked, scheduled, now)
	started = times.Within(scheduled, started, now)
	took := func(stage metrics.Stage, d time.Duration) {
		to.WakeTook(es.Namespace, es.Name, es.Spec.Service, stage, d)
	}
	took(metrics.StageScheduled, scheduled.Sub(w.asked))
	took(metrics.StageStarted, started.Sub(scheduled))
	took(metrics.StageUp, now.Sub(started))
}

// podTimes are when the first of the pods was scheduled, and when the first one had its
// containers started, to a second.
func podTimes(pods []corev1.Pod) (scheduled, started time.Time) {
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
				scheduled = times.Earliest(scheduled, c.LastTransitionTime.Time)
			}
		}
		var last time.Time
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Running == nil {
				last = time.Time{}
				break
			}
			last = times.Latest(last, s.State.Running.StartedAt.Time)
		}
		started = times.Earliest(started, last)
	}
	return scheduled, started
}
