package gameautoscaler

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/times"
)

// plan is what a pass is to do.
type plan struct {
	// desired is how many Servers are to be asked for. Where it is what was observed nothing is
	// to be written.
	desired int32
	// wishes are what the policies wish, in the order of the spec.
	wishes []wish
	// keepAwake is until when a schedule or a forecast wants the target not to sleep; zero where none does.
	keepAwake time.Time
	// active, able and limited are the conditions Active, AbleToScale and Limited.
	active, able, limited verdict
	// history is for the next pass. It assumes that desired was written.
	history      history
	requeueAfter requeue.After
}

// verdict is what a condition says.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// makePlan decides how many Servers the target is to have. The package comment has the order.
func makePlan(now time.Time, spec *v1alpha1.GameAutoscalerSpec, h history, o observed) plan {
	if o.deleting {
		return leftAlone(o, h)
	}
	asleep := o.desired == 0
	next := history{lastUp: h.lastUp, lastDown: h.lastDown, played: !asleep && (h.played || o.players > 0)}
	h.played = next.played

	// What does each policy wish?
	p := plan{}
	var highest, failed *wish
	polled, reports := false, false
	for i := range spec.Policies {
		policy := &spec.Policies[i]
		w := evaluate(now, spec, policy, h, o, &next)
		p.wishes = append(p.wishes, w)
		p.keepAwake = times.Latest(p.keepAwake, w.keepAwake)
		polled = polled || policy.Schedule == nil
		reports = reports || policy.Schedule == nil && policy.Forecast == nil
		if !w.again.IsZero() {
			p.requeueAfter.AtMost(w.again.Sub(now))
		}
	}
	for i := range p.wishes {
		w := &p.wishes[i]
		if w.failed && failed == nil {
			failed = w
		}
		if w.replicas != nil && (highest == nil || *w.replicas > *highest.replicas) {
			highest = w
		}
	}

	// Asleep, nothing but a schedule or a forecast wishes anything.
	if asleep {
		return p.wake(now, spec, next, highest, failed)
	}
	if polled {
		p.requeueAfter.AtMost(interval(spec))
	}

	// What counts, with nobody's wish?
	wished, _ := bounds(spec)
	switch {
	case highest != nil:
		wished = *highest.replicas
	case failed != nil:
		wished = o.desired
	}

	// How much of it now?
	next.ups = added(h.ups, now, upWindow(spec), wished, lower, o.desired)
	next.downs = added(h.downs, now, downWindow(spec), wished, higher, o.desired)
	c := paced(now, spec, next, o.desired, wished, heldBy(o, failed, reports))
	p.desired = c.replicas
	p.requeueAfter.AtMost(c.requeueAfter.Duration())
	p.history = next.changed(now, o.desired, p.desired)

	p.active = verdict{metav1.ConditionTrue, reasons.PoliciesEvaluated, wishedBy(highest, wished)}
	if failed != nil {
		p.active = verdict{metav1.ConditionFalse, failed.reason, failure(failed)}
	}
	p.able = verdict{metav1.ConditionTrue, c.able.reason, c.able.message}
	p.limited = verdict{metav1.ConditionTrue, c.limited.reason, c.limited.message}
	if c.limited.reason == reasons.WithinBounds {
		p.limited.status = metav1.ConditionFalse
	}
	return p
}

// wake is the plan for a target that sleeps. It wakes for the highest wish.
func (p plan) wake(now time.Time, spec *v1alpha1.GameAutoscalerSpec, next history, highest, failed *wish) plan {
	const sleeps = "The target sleeps, and its autoscaler rests."
	p.able = verdict{metav1.ConditionUnknown, reasons.Asleep, sleeps}
	p.limited = verdict{metav1.ConditionUnknown, reasons.Asleep, sleeps}
	p.history = next
	switch {
	case highest != nil:
		c := change{replicas: *highest.replicas}
		c.bound(spec, *highest.replicas)
		p.desired = c.replicas
		p.history = next.changed(now, 0, p.desired)
		p.active = verdict{metav1.ConditionTrue, reasons.PoliciesEvaluated, wishedBy(highest, *highest.replicas)}
	case failed != nil:
		p.active = verdict{metav1.ConditionFalse, failed.reason, failure(failed)}
	default:
		p.active = verdict{metav1.ConditionFalse, reasons.Asleep, sleeps}
	}
	return p
}

// leftAlone is the plan for a target that is being deleted.
func leftAlone(o observed, h history) plan {
	const message = "The target is being deleted."
	unknown := verdict{metav1.ConditionUnknown, reasons.TargetDeleted, message}
	return plan{
		desired: o.desired,
		active:  verdict{metav1.ConditionFalse, reasons.TargetDeleted, message},
		able:    unknown, limited: unknown,
		history: h,
	}
}

// added is a stabilization window with a new wish. At first what there is counts as wished.
func added(w window, now time.Time, length time.Duration, wished int32, extreme func(a, b int32) bool, desired int32) window {
	if len(w) == 0 {
		w = window{{now, desired}}
	}
	return w.add(now, length, wished, extreme)
}

// changed is the history after a change of replicas.
func (h history) changed(now time.Time, from, to int32) history {
	switch {
	case to > from:
		h.lastUp = now
	case to < from:
		h.lastDown = now
	}
	return h
}

// heldBy is why no Servers may be taken away; empty where some may. Schedules and forecasts need
// no reports.
func heldBy(o observed, failed *wish, reports bool) string {
	switch {
	case failed != nil:
		return "policy " + failed.policy + " can't be evaluated."
	case reports && !o.fresh:
		return "some have not reported for a while, so that it isn't known who plays."
	case o.updating:
		return "an update of the target is under way."
	}
	return ""
}

// failure is a sentence about a policy that can't be evaluated.
func failure(w *wish) string {
	return fmt.Sprintf("Policy %s can't be evaluated, and until it can no Servers are taken away. %s", w.policy, w.message)
}

// wishedBy is a sentence about the wish that counts.
func wishedBy(highest *wish, wished int32) string {
	if highest == nil {
		return fmt.Sprintf("No policy wishes anything, so that there are to be minReplicas: %d.", wished)
	}
	return strings.TrimSpace(fmt.Sprintf("Policy %s wishes the most: %s. %s", highest.policy, servers(wished), highest.message))
}
