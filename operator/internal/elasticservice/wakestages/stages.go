// Package wakestages measures how long the stages of a wake from zero take. Only a leader that
// saw the target at zero before knows when the wake began; otherwise it isn't counted. The
// package reads nothing: the controller gives it what it saw.
package wakestages

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// asked is when the first client asked, or Dormouse woke the service by itself.
	asked time.Time
}

// Slept notes that the target is at zero.
func (w *Wake) Slept(es *v1alpha1.ElasticService) {
	*w = Wake{atZero: true, stamp: times.Micro(es.Status.LastWakeTime)}
}

// Raised notes that Dormouse woke the service by itself.
func (w *Wake) Raised(at time.Time) {
	if w.atZero && w.asked.IsZero() {
		w.asked = at
	}
}

// Pass takes in what a pass saw, and reports whether a wake is done, for a client or by Dormouse
// itself.
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

// Took is where a wake's time went, in a status: its server was up at now, and its endpoints were
// written at applied. The pods are the target's.
func (w *Wake) Took(es *v1alpha1.ElasticService, now, applied time.Time, pods []corev1.Pod) *v1alpha1.LastWake {
	asked := w.asked
	last := &v1alpha1.LastWake{Asked: metav1.NewMicroTime(asked)}
	began, text := asked, ""
	if scheduled, started := podTimes(pods); !scheduled.IsZero() && !started.IsZero() { // else the pods are gone again
		scheduled = times.Within(asked, scheduled, now)
		started = times.Within(scheduled, started, now)
		last.Scheduled, last.Started = durationOf(scheduled.Sub(asked)), durationOf(started.Sub(scheduled))
		text = fmt.Sprintf("a pod had a node after %s, its containers were started %s later, ", last.Scheduled.Duration, last.Started.Duration)
		began = started
	}
	last.Up = *durationOf(now.Sub(began))
	text += fmt.Sprintf("a server was up after %s", last.Up.Duration)
	if last.Started != nil {
		text += " more"
	}
	if spec.Of(es).Handoff == v1alpha1.HandoffDirect {
		last.HandedOver = durationOf(applied.Sub(now))
		text += fmt.Sprintf(", and new clients went to it %s later", last.HandedOver.Duration)
	}
	for _, stage := range []*metav1.Duration{last.Scheduled, last.Started, &last.Up, last.HandedOver} {
		if stage != nil {
			last.Took.Duration += stage.Duration
		}
	}
	last.Message = fmt.Sprintf("The wake took %s: %s.", last.Took.Duration, text)
	return last
}

// Observe counts a wake in the metrics.
func Observe(to *metrics.Controller, last *v1alpha1.LastWake) {
	for _, stage := range []struct {
		name metrics.Stage
		took *metav1.Duration
	}{
		{metrics.StageScheduled, last.Scheduled},
		{metrics.StageStarted, last.Started},
		{metrics.StageHandedOver, last.HandedOver},
		{metrics.StageTotal, &last.Took},
	} {
		if stage.took != nil {
			to.WakeTook(stage.name, stage.took.Duration)
		}
	}
	if last.Started != nil {
		to.WakeTook(metrics.StageUp, last.Up.Duration)
	}
}

// durationOf is a duration as the status has it, to a millisecond.
func durationOf(d time.Duration) *metav1.Duration {
	return &metav1.Duration{Duration: max(0, d).Round(time.Millisecond)}
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
