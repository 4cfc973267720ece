package gameautoscaler

import "dormouse.dev/dormouse/api/v1alpha1"

// What forecasts remember is kept in the status, where another leader finds it.

// weeksOf is what the status has of the forecasts' weeks. What can't be read is learnt anew.
func weeksOf(gas *v1alpha1.GameAutoscaler) map[string]weekly {
	weeks := map[string]weekly{}
	for i := range gas.Status.Policies {
		p := &gas.Status.Policies[i]
		if p.Memory == "" {
			continue
		}
		if w, err := weeklyOf(p.Memory); err == nil {
			weeks[p.Name] = w
		}
	}
	return weeks
}

// keepMemory puts the forecasts' weeks into the status, as it was before where their hour is still the
// same: peaks change with each player.
func keepMemory(before, gas *v1alpha1.GameAutoscaler, h history) {
	had := map[string]string{}
	for i := range before.Status.Policies {
		had[before.Status.Policies[i].Name] = before.Status.Policies[i].Memory
	}
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
