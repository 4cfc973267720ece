package gameautoscaler

import "dormouse.dev/dormouse/api/v1alpha1"

// What forecasts remember is kept in the status, where another leader finds it.

// memoriesOf are what the status has of the forecasts, by the policies' names.
func memoriesOf(gas *v1alpha1.GameAutoscaler) map[string]string {
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
	for name, memory := range memoriesOf(gas) {
		if w, err := weeklyOf(memory); err == nil {
			weeks[name] = w
		}
	}
	return weeks
}

// keepMemory puts the forecasts' weeks into the status; as they were there before, where their hour is
// still the same: peaks change with each player.
func keepMemory(had map[string]string, gas *v1alpha1.GameAutoscaler, h history) {
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

// learns reports whether a pass has put anything into the forecasts' weeks.
func learns(before, after history) bool {
	for name, w := range after.weeks {
		if had := before.weeks[name]; w.Hour != had.Hour || w.Peak != had.Peak {
			return true
		}
	}
	return false
}
