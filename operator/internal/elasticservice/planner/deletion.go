package planner

import (
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/target"
)

// decideDeletion wakes the target, unless that is another ElasticService's to wake, and waits until the Service works
// without Dormouse. It delays a deletion by no more than DeletionPatience.
func (d *decision) decideDeletion() {
	o, neverStarted := d.o, d.found.NeverStarted
	taken, asleep := o.TargetTaken != "", o.Scale.Err == nil && o.Scale.Replicas == 0
	patience := d.es.DeletionTimestamp.Add(DeletionPatience).Sub(d.now)
	gone := o.Service == nil || o.NamespaceEnding || target.IsUserError(o.Scale.Err) || o.Older != "" || neverStarted ||
		taken && asleep && !d.found.Former
	ours := o.Older == "" && !taken && !neverStarted && !o.NamespaceEnding
	d.Raise = ours && asleep
	if gone || patience <= 0 {
		d.Release = true
		return
	}
	relaying := false
	for _, r := range d.Roles {
		relaying = relaying || r != endpoints.RoleNone
	}
	d.Release = d.Phase == v1alpha1.PhaseAwake && !relaying && !d.found.Former
	d.RequeueAfter.AtMost(min(patience, endpoints.Linger))
}
