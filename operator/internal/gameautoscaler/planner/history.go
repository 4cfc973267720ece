package planner

import "dormouse.dev/dormouse/api/v1alpha1"

// What forecasts remember is kept in the status, where another leader finds it.

// Memories are what the status has of the forecasts, by the policies' names.
func Memories(gas *v1alpha1.GameAutoscaler) map[string]string {
	memories := map[string]string{}
	for i := range gas.Status.Policies {
		if p := &gas.Status.Policies[i]; p.Memory != "" {
			memories[p.Name] = p.Memory
		}
	}
	return memories
}

// weeksOf are the forecasts' weeks by the status. What can't be read is learnt anew.
func weeksOf(gas *v1alpha1.GameAutoscaler) map[string]weekly {
	weeks := map[string]weekly{}
	for name, memory := range Memories(gas) {
		if w, err := weeklyOf(memory); err == nil {
			weeks[name] = w
		}
	}
	return weeks
}

// keepMemory puts the forecasts' weeks into the status; as they were there before, where their hour is
// still the same: peaks change with each player.
func keepMemory(had map[string]string, gas *v1alpha1.GameAutoscaler, h History) {
	for i := range gas.Status.Policies {
		p := &gas.Status.Policies[i]
		w, ok := h.weeks[p.Name]
		if !ok {
			continue
		}
		p.Memory = had[p.Name]
		if kept, err := weeklyOf(p.Memory); err == nil && kept.Hour == w.Hour {
			continue
		}
		if text, err := w.stored(); err == nil {
			p.Memory = text
		}
	}
}

// Learns reports whether a pass has put anything into the forecasts' weeks.
func (h History) Learns(before History) bool {
	for name, w := range h.weeks {
		if had := before.weeks[name]; w.Hour != had.Hour || w.Peak != had.Peak {
			return true
		}
	}
	return false
}

// HistoryOf is the history that a status knows of.
func HistoryOf(gas *v1alpha1.GameAutoscaler) History {
	h := History{weeks: weeksOf(gas)}
	if last := gas.Status.LastScaleTime; last != nil {
		h.lastUp, h.lastDown = last.Time, last.Time // it doesn't know which of the two it was
	}
	return h
}

// Untargeted is what is left of the history once there is no target that can be scaled.
func (h History) Untargeted() History {
	return History{lastUp: h.lastUp, lastDown: h.lastDown, weeks: h.weeks}
}

// Unscaled is the history with an earlier one's times of changes: the last change didn't happen.
func (h History) Unscaled(before History) History {
	h.lastUp, h.lastDown = before.lastUp, before.lastDown
	return h
}
