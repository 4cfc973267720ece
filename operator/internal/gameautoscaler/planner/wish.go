package planner

import (
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/text"
)

// wish is what a policy makes of a pass.
type wish struct {
	policy string
	// replicas is how many Servers it wishes; nil where it rests or failed.
	replicas *int32
	// failed is set where it could not be evaluated.
	failed bool
	// keepAwake is until when the target is not to sleep; zero where that is all the same.
	keepAwake time.Time
	// again is when the policy may wish something else though nothing else changes; zero is
	// never.
	again time.Time
	// reason and message tell why.
	reason, message string
}

func wants(replicas int32, reason, message string) wish {
	return wish{replicas: &replicas, reason: reason, message: message}
}

func rests(reason, message string) wish { return wish{reason: reason, message: message} }

func fails(reason, message string) wish {
	return wish{failed: true, reason: reason, message: message}
}

// evaluate asks a policy for its wish. What is to be kept of it goes to next.
func evaluate(now time.Time, spec *v1alpha1.GameAutoscalerSpec, p *v1alpha1.AutoscalerPolicy, h History, o Observed, next *History) wish {
	asleep := o.Desired == 0
	w := wish{}
	delay := h.delays[p.Name]
	if p.Buffer != nil && len(delay) == 0 && !h.slept {
		delay = begunDelay(now, p.Buffer, o)
	}
	switch {
	case p.Forecast != nil:
		var remembered weekly
		w, remembered = forecast(now, p.Forecast, h.weeks[p.Name], o)
		next.keepWeeks(p.Name, remembered) // asleep, too, when nobody comes
		if asleep && !p.Forecast.Wake {
			w = wish{reason: reasons.Asleep, message: resting, again: w.again}
		}
	case asleep && (p.Schedule == nil || !p.Schedule.Wake):
		w = rests(reasons.Asleep, resting)
	case p.Schedule != nil:
		w = scheduled(now, p.Schedule)
	case p.Webhook != nil:
		w = webhook(p.Name, o)
	case !o.Fresh:
		w = fails(reasons.ReportsStale, "Some Servers have not reported for a while, so that it isn't known who plays.")
	case p.ActivePlayers != nil:
		w = activePlayers(now, spec, p.ActivePlayers, h, o)
	case p.Buffer != nil:
		w, delay = buffer(now, p.Buffer, delay, o)
	default:
		w = fails(reasons.NotObserved, "Its kind is not known to this version of Dormouse.")
	}
	if p.Buffer != nil && !asleep && len(delay) > 0 {
		next.keepDelay(p.Name, delay) // it goes on to count where the buffer can't be evaluated
	}
	w.policy = p.Name
	return w
}

const resting = "It rests while the target sleeps."

// webhook is the wish of a webhook that was asked before the pass.
func webhook(name string, o Observed) wish {
	a, ok := o.Answers[name]
	switch {
	case !ok:
		return fails(reasons.WebhookNotAnswered, "The webhook has not answered yet.")
	case a.Reason != "":
		return fails(a.Reason, text.Bounded(a.Message))
	case a.Keep:
		return wants(o.Desired, reasons.WebhookKeeps, "The webhook answered that nothing is to be changed.")
	}
	replicas := bounded(a.Replicas)
	return wants(replicas, reasons.WebhookAnswered, "The webhook asks for "+text.Servers(replicas)+".")
}
