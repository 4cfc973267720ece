package planner

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/target"
)

// planDeletion wakes the target and waits until the Service works without Dormouse. It delays a
// deletion by no more than DeletionPatience.
func (p *Plan) planDeletion(now time.Time, es *v1alpha1.ElasticService, o Observed, f Findings) {
	patience := es.DeletionTimestamp.Add(DeletionPatience).Sub(now)
	gone := o.Service == nil || o.NamespaceEnding || target.IsUserError(o.Scale.Err) || o.Older != "" || f.NeverStarted
	ours := o.Older == "" && !f.NeverStarted && !o.NamespaceEnding
	p.Raise = ours && o.Scale.Err == nil && o.Scale.Replicas == 0
	if gone || patience <= 0 {
		p.Release = true
		return
	}
	relaying := false
	for _, r := range p.Roles {
		relaying = relaying || r != endpoints.RoleNone
	}
	p.Release = p.Phase == v1alpha1.PhaseAwake && !relaying && !f.Former
	p.RequeueAfter.AtMost(min(patience, endpoints.Linger))
}
