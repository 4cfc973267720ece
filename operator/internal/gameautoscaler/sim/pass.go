package sim

import (
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
)

// decider makes the decisions of one GameAutoscaler, one after the other, as the controller does.
type decider struct {
	spec    v1alpha1.GameAutoscalerSpec
	history planner.History
}

// decide makes the next decision. It assumes that the last one took effect.
func (d *decider) decide(now time.Time, o planner.Observed) planner.Plan {
	p := planner.Make(now, &d.spec, d.history, o)
	d.history = p.History
	return p
}

// changed has the autoscaler and the ElasticService look at what changed.
func (w *world) changed() {
	w.decideIn(lag)
	w.lookToRest()
}

// decideIn has the autoscaler look after a time at the latest.
func (w *world) decideIn(d time.Duration) {
	if w.decider == nil || d <= 0 {
		return
	}
	if at := w.now + d; w.decideAt <= w.now || at < w.decideAt {
		w.decideAt = at
		w.events.add(event{at: at, kind: decides})
	}
}

// decide is a pass of the autoscaler.
func (w *world) decide() {
	now := w.trace.Begin.Add(w.now)
	d := w.decider.decide(now, w.observe())
	w.keepAwake = 0
	if !d.KeepAwake.IsZero() {
		w.keepAwake = d.KeepAwake.Sub(w.trace.Begin)
	}
	if d.Desired != w.desired {
		w.set(d.Desired)
	}
	w.decideIn(d.RequeueAfter.Duration())
	w.lookToRest()
}

// observe is what the autoscaler sees.
func (w *world) observe() planner.Observed {
	o := planner.Observed{Desired: w.desired, Updating: w.updating(), Fresh: true}
	for _, s := range w.servers {
		if s.draining {
			continue
		}
		o.Current++
		o.Players += int64(s.players)
		if s.ready {
			o.Ready++
			o.Capacity += room
			if s.players == 0 {
				o.Empty++
			}
		}
	}
	for _, boot := range w.boots {
		o.BootTime += boot / time.Duration(len(w.boots))
	}
	if name, ok := w.policy.asks(); ok && w.desired > 0 {
		if w.asked == 0 || w.now-w.asked >= polls {
			w.asked, w.answer = w.now, w.ask(&o)
		}
		w.decideIn(w.asked + polls - w.now)
		o.Answers = map[string]planner.Answer{name: w.answer}
	}
	return o
}

// ask is the owner's webhook, which keeps the same room as the buffer.
func (w *world) ask(o *planner.Observed) planner.Answer {
	if w.now >= w.trace.OutageFrom && w.now < w.trace.OutageTo {
		return planner.Answer{Reason: reasons.WebhookNotAnswered, Message: "The webhook does not answer."}
	}
	if o.Ready == 0 {
		return planner.Answer{Replicas: int64(o.Desired)}
	}
	return planner.Answer{Replicas: (o.Players + spare + room - 1) / room}
}

// sleepsAt is when the game is to sleep, if nothing changes until then.
func (w *world) sleepsAt() (time.Duration, bool) {
	if w.policy.alwaysOn || w.desired == 0 || w.playing > 0 || len(w.waiting) > 0 {
		return 0, false
	}
	return max(w.idleSince+sleepAfter, w.keepAwake), true
}

func (w *world) lookToRest() {
	if at, ok := w.sleepsAt(); ok && at != w.restAt {
		w.restAt = max(at, w.now)
		w.events.add(event{at: w.restAt, kind: rests})
	}
}

// rest puts the game to sleep where it is time.
func (w *world) rest() {
	at, ok := w.sleepsAt()
	switch {
	case ok && at <= w.now:
		w.restAt = 0
		w.set(0)
	case ok:
		w.lookToRest()
	}
}
