package planner

import "time"

// Observed is what a pass sees of the target.
type Observed struct {
	// Desired is how many Servers are asked for now; 0 while the target sleeps.
	Desired int32
	// Current is the number of Servers that neither drain nor are being deleted, and whose node
	// isn't lost, Ready how many
	// of them take players (in state Ready, Allocated or Reserved), and Empty how many of those are
	// in state Ready, so neither of the others, with nobody playing there.
	Current, Ready, Empty int32
	// Players is how many play on the Servers counted in Current, and Capacity how many could
	// on those counted in Ready.
	Players, Capacity int64
	// BootTime is how long Servers usually take to get Ready; 0 where that isn't known.
	BootTime time.Duration
	// Fresh is set where each Server in which a game runs has reported lately.
	Fresh bool
	// Updating is set while an update of the target is under way: Servers that take players are
	// of several revisions. Deleting is set while the target is being deleted.
	Updating, Deleting bool
	// Answers are what webhooks answered, by their policies' names.
	Answers map[string]Answer
}

// Answer is what a webhook answered.
type Answer struct {
	// Replicas is what it wishes, and Keep is set where it answered that nothing is to be
	// changed.
	Replicas int64
	Keep     bool
	// Reason and Message tell why there is no answer; Reason is empty where there is one.
	Reason, Message string
}

// History is what earlier passes leave for the next. The zero History is that of an autoscaler
// that nobody has looked at before.
type History struct {
	// lastUp and lastDown are when replicas were last raised and lowered.
	lastUp, lastDown time.Time
	// ups and downs are the wishes of the stabilization windows. They are empty while the
	// target sleeps.
	ups, downs window
	// delays are the wishes within the delays of buffers, by the policies' names.
	delays map[string]window
	// weeks are what forecasts remember, by the policies' names. They outlast a sleep, and are to
	// outlast the operator: see stored.
	weeks map[string]weekly
	// played is set once anybody has played since the target woke.
	played bool
	// slept is set where the target slept on the last pass.
	slept bool
}

// keepDelay and keepWeeks put away what is to be kept of a policy.
func (h *History) keepDelay(policy string, w window) {
	if h.delays == nil {
		h.delays = map[string]window{}
	}
	h.delays[policy] = w
}

func (h *History) keepWeeks(policy string, w weekly) {
	if h.weeks == nil {
		h.weeks = map[string]weekly{}
	}
	h.weeks[policy] = w
}
