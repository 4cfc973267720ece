package gameautoscaler

import "time"

// observed is what a pass sees of the target.
type observed struct {
	// desired is how many Servers are asked for now; 0 while the target sleeps.
	desired int32
	// current is the number of Servers that neither drain nor are being deleted, ready how many
	// of them take players (Ready, Allocated or Reserved), and empty how many of those are
	// Ready, so neither of the others, with nobody playing there.
	current, ready, empty int32
	// players is how many play on the Servers counted in current, and capacity how many could
	// on those counted in ready.
	players, capacity int64
	// bootTime is how long Servers usually take to get Ready; 0 where that isn't known.
	bootTime time.Duration
	// fresh is set where each Server in which a game runs has reported lately.
	fresh bool
	// updating is set while an update of the target is under way: Servers that take players are
	// of several revisions. deleting is set while the target is being deleted.
	updating, deleting bool
	// answers are what webhooks answered, by their policies' names.
	answers map[string]answer
}

// answer is what a webhook answered.
type answer struct {
	// replicas is what it wishes, and keep is set where it answered that nothing is to be
	// changed.
	replicas int64
	keep     bool
	// reason and message tell why there is no answer; reason is empty where there is one.
	reason, message string
}

// history is what earlier passes leave for the next. The zero history is that of an autoscaler
// that nobody has looked at before.
type history struct {
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
}

// keepDelay and keepWeeks put away what is to be kept of a policy.
func (h *history) keepDelay(policy string, w window) {
	if h.delays == nil {
		h.delays = map[string]window{}
	}
	h.delays[policy] = w
}

func (h *history) keepWeeks(policy string, w weekly) {
	if h.weeks == nil {
		h.weeks = map[string]weekly{}
	}
	h.weeks[policy] = w
}
