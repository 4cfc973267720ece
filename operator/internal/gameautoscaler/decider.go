package gameautoscaler

import (
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// Decider makes the decisions of one GameAutoscaler, one after the other, as the controller does:
// without a cluster, and by the clock of whoever calls it. Simulations use it.
type Decider struct {
	spec    v1alpha1.GameAutoscalerSpec
	history history
}

// NewDecider returns one that nothing has been shown yet.
func NewDecider(spec v1alpha1.GameAutoscalerSpec) *Decider { return &Decider{spec: spec} }

// Observation is what there is to see of a target whose Servers have all reported lately.
type Observation struct {
	// Desired is how many Servers are asked for; 0 while the target sleeps.
	Desired int32
	// Current is the number of Servers that don't drain, Ready how many of them take players, and
	// Empty on how many of those nobody plays.
	Current, Ready, Empty int32
	// Players is how many play on the Servers of Current, and Capacity how many could on those of
	// Ready.
	Players, Capacity int64
	// BootTime is how long Servers usually take to get Ready; 0 where that isn't known.
	BootTime time.Duration
	// Updating is set while Servers of several revisions take players.
	Updating bool
	// Answers are the last ones of webhooks, by their policies' names.
	Answers map[string]WebhookAnswer
}

// WebhookAnswer is what a webhook answered: a number of Servers, unless it failed.
type WebhookAnswer struct {
	Replicas int64
	Failed   bool
}

// Decision is what is to be done.
type Decision struct {
	// Desired is how many Servers are to be asked for.
	Desired int32
	// KeepAwake is until when the target is not to sleep; zero is all the same.
	KeepAwake time.Time
	// After is when to decide again though nothing changes; 0 is never.
	After time.Duration
}

// Decide makes the next decision. It assumes that the last one took effect.
func (d *Decider) Decide(now time.Time, o Observation) Decision {
	seen := observed{
		desired: o.Desired, current: o.Current, ready: o.Ready, empty: o.Empty,
		players: o.Players, capacity: o.Capacity, bootTime: o.BootTime,
		updating: o.Updating, fresh: true, answers: map[string]answer{},
	}
	for name, a := range o.Answers {
		if a.Failed {
			seen.answers[name] = answer{reason: reasons.WebhookNotAnswered, message: "The webhook does not answer."}
		} else {
			seen.answers[name] = answer{replicas: a.Replicas}
		}
	}
	p := makePlan(now, &d.spec, d.history, seen)
	d.history = p.history
	return Decision{Desired: p.desired, KeepAwake: p.keepAwake, After: p.requeueAfter.Duration()}
}
