package elasticservice

import (
	"context"
	"errors"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/target"
)

// raisedCheck is when to look at a target again that was scaled up: the change of one whose kind
// isn't watched shows nowhere before its pods do.
const raisedCheck = time.Second

// raiseTime bounds a wake, as it bounds that for a client. The pass goes on to write the endpoints.
const raiseTime = 3 * time.Second

// WakeScaler scales targets up.
type WakeScaler interface {
	RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error)
}

// raise wakes the service because something keeps it awake. Where that fails it is noted as a
// flaw, and tried again later: clients need the endpoints meanwhile.
func (r *Reconciler) raise(ctx context.Context, p *pass) {
	ctx, cancel := context.WithTimeout(ctx, raiseTime)
	defer cancel()
	at, by := r.Now(), p.plan.KeptAwake(p.es).By
	raised, err := r.WakeScaler.RaiseTo(ctx, target.Of(p.es), p.observed.Autoscaler.Bound(target.Wanted(p.es)))
	switch {
	case errors.Is(err, target.ErrForbidden):
		p.found.Note(obstacle.New(reasons.TargetForbidden, "%s keeps the service awake, and the operator %s: let it scale %s.",
			by, refusal.Words(err), target.Of(p.es)))
		return
	case refusal.Is(err), target.IsUserError(err):
		p.found.Note(obstacle.New(reasons.Refused, "%s keeps the service awake, and the target can't be scaled up (%s): change what refuses it.",
			by, refusal.Words(err)))
		return
	case err != nil:
		p.found.Note(obstacle.New(reasons.Refused, "%s keeps the service awake, and the target can't be scaled up just now (%s): Dormouse tries again.",
			by, refusal.Words(err)))
		return
	}
	p.state.scale.of = version{} // the next pass must read: the watch shows the write only later
	p.plan.RequeueAfter.AtMost(raisedCheck)
	if raised.After > raised.Before {
		p.raised = at
		kit.Emit(r.Events, p.es, status.Raised(p.es, p.plan, raised.Before, raised.After))
	}
}
