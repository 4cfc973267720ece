package planner

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/text"
	"dormouse.dev/dormouse/operator/internal/times"
)

// Plan is what a pass is to do.
type Plan struct {
	// Desired is how many Servers are to be asked for. Where it is what was observed nothing is
	// to be written.
	Desired int32
	// wishes are what the policies wish, in the order of the spec.
	wishes []wish
	// KeepAwake is until when a schedule or a forecast wants the target not to sleep; zero where none does.
	KeepAwake time.Time
	// active, able and limited are the conditions Active, AbleToScale and Limited.
	active, able, limited verdict
	// History is for the next pass. It assumes that Desired was written.
	History History
	// RequeueAfter is when to look again though nothing changes.
	RequeueAfter requeue.After
}

// verdict is what a condition says.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// ActiveMessage is the message of the condition Active.
func (p Plan) ActiveMessage() string { return p.active.message }

// Refuse notes that the API server refuses the change, with these words: there are to be as many Servers
// as there are.
func (p *Plan) Refuse(desired int32, words string) {
	p.Desired = desired
	p.able = verdict{metav1.ConditionFalse, reasons.ScaleRefused, "The replicas can't be changed: " + words + "."}
}

// Make decides how many Servers the target is to have. The package comment has the order.
func Make(now time.Time, spec *v1alpha1.GameAutoscalerSpec, h History, o Observed) Plan {
	if o.Deleting {
		return leftAlone(o, h)
	}
	asleep := o.Desired == 0
	next := History{lastUp: h.lastUp, lastDown: h.lastDown, slept: asleep, played: !asleep && (h.played || o.Players > 0)}
	h.played = next.played

	// What does each policy wish?
	p := Plan{}
	var highest, failed *wish
	polled, reports := false, false
	for i := range spec.Policies {
		policy := &spec.Policies[i]
		w := evaluate(now, spec, policy, h, o, &next)
		p.wishes = append(p.wishes, w)
		p.KeepAwake = times.Latest(p.KeepAwake, w.keepAwake)
		polled = polled || policy.Schedule == nil
		reports = reports || policy.Schedule == nil && policy.Forecast == nil
		if !w.again.IsZero() {
			p.RequeueAfter.AtMost(w.again.Sub(now))
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
		p.RequeueAfter.AtMost(Interval(spec))
	}

	// What counts, with nobody's wish?
	wished, _ := bounds(spec)
	switch {
	case highest != nil:
		wished = *highest.replicas
	case failed != nil:
		wished = o.Desired
	}

	// How much of it now?
	next.ups = added(h.ups, now, upWindow(spec), wished, lower, o.Desired)
	next.downs = added(h.downs, now, downWindow(spec), wished, higher, o.Desired)
	c := paced(now, spec, next, o.Desired, wished, heldBy(o, failed, reports))
	p.Desired = c.replicas
	p.RequeueAfter.AtMost(c.requeueAfter.Duration())
	if failed != nil {
		// It might have wished what there is.
		next.downs = added(h.downs, now, downWindow(spec), max(wished, o.Desired), higher, o.Desired)
	}
	p.History = next.changed(now, o.Desired, p.Desired)

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
func (p Plan) wake(now time.Time, spec *v1alpha1.GameAutoscalerSpec, next History, highest, failed *wish) Plan {
	const sleeps = "The target sleeps, and its autoscaler rests."
	p.able = verdict{metav1.ConditionUnknown, reasons.Asleep, sleeps}
	p.limited = verdict{metav1.ConditionUnknown, reasons.Asleep, sleeps}
	p.History = next
	switch {
	case highest != nil:
		c := change{replicas: *highest.replicas}
		c.bound(spec, *highest.replicas)
		p.Desired = c.replicas
		p.History = next.changed(now, 0, p.Desired)
		p.active = verdict{metav1.ConditionTrue, reasons.PoliciesEvaluated, wishedBy(highest, *highest.replicas)}
	case failed != nil:
		p.active = verdict{metav1.ConditionFalse, failed.reason, failure(failed)}
	default:
		p.active = verdict{metav1.ConditionFalse, reasons.Asleep, sleeps}
	}
	return p
}

// leftAlone is the plan for a target that is being deleted.
func leftAlone(o Observed, h History) Plan {
	const message = "The target is being deleted."
	unknown := verdict{metav1.ConditionUnknown, reasons.TargetDeleted, message}
	return Plan{
		Desired: o.Desired,
		active:  verdict{metav1.ConditionFalse, reasons.TargetDeleted, message},
		able:    unknown, limited: unknown,
		History: h,
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
func (h History) changed(now time.Time, from, to int32) History {
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
func heldBy(o Observed, failed *wish, reports bool) string {
	switch {
	case failed != nil:
		return "policy " + failed.policy + " can't be evaluated."
	case reports && !o.Fresh:
		return "some have not reported for a while, so that it isn't known who plays."
	case o.Updating:
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
	return strings.TrimSpace(fmt.Sprintf("Policy %s wishes the most: %s. %s", highest.policy, text.Servers(wished), highest.message))
}
