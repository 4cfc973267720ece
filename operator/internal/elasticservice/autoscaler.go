package elasticservice

import (
	"context"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/autoscaler"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/obstacle"
)

// observeAutoscaler reads what sets the target's replicas while the service is awake. One that
// could not be paused lately keeps the service awake, so that it isn't tried all the time.
func (r *Reconciler) observeAutoscaler(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, m *state, o *planner.Observed) {
	o.Autoscaler = r.Autoscalers.See(ctx, es)
	attempts := made(&m.autoscaler)
	attempts.Look(now, o.Autoscaler)
	if o.Autoscaler.Problem == nil {
		o.Autoscaler.Problem = attempts.Failed
	}
}

// keepAutoscaler has a ScaledObject of KEDA paused from the beginning of a sleep to the wake. Its
// name is in the status before it is paused: whoever takes over knows what to release, even if
// the spec names another one by then.
func (r *Reconciler) keepAutoscaler(ctx context.Context, p *pass) {
	es, seen, o := p.es, p.observed.Autoscaler, p.observed
	paused := es.Status.PausedScaledObject
	if es.Spec.Autoscaler == nil && paused == "" {
		return
	}
	if o.Older != "" || o.TargetTaken != "" {
		if paused != "" && o.Scale.Err == nil && o.Scale.Replicas > 0 {
			r.unpaused(p, r.Autoscalers.Release(ctx, es)) // no other ElasticService would end it
			p.found.Note(made(&p.state.autoscaler).Failed)
		}
		return
	}
	wish := seen.Want(autoscaler.Situation{
		ReplicasObserved: o.Scale.Err == nil, Replicas: o.Scale.Replicas,
		FallingAsleep: p.plan.Phase == v1alpha1.PhaseFallingAsleep, Deleting: !es.DeletionTimestamp.IsZero(),
	})
	switch {
	case paused != "" && (seen.Kind != v1alpha1.AutoscalerKEDA || paused != seen.Name):
		r.unpaused(p, r.Autoscalers.Release(ctx, es)) // it is named no more
	case wish == autoscaler.Pause && paused == "":
		es.Status.PausedScaledObject = seen.Name // the pass that this write leads to pauses it
	case wish == autoscaler.Pause && !seen.Paused:
		made(&p.state.autoscaler).Paused(p.now, r.Autoscalers.Pause(ctx, es, seen))
	case wish == autoscaler.Unpause && seen.Ours:
		r.unpaused(p, r.Autoscalers.Unpause(ctx, es, seen))
	case wish == autoscaler.Unpause && paused != "":
		// The cache may be late, or could not be read.
		r.unpaused(p, r.Autoscalers.Release(ctx, es))
	}
	p.found.Note(made(&p.state.autoscaler).Failed)
}

// unpaused notes the end of a pause, or why it goes on.
func (r *Reconciler) unpaused(p *pass, failed *obstacle.Obstacle) {
	if failed == nil {
		p.es.Status.PausedScaledObject = ""
		return
	}
	made(&p.state.autoscaler).NotUnpaused(p.now, failed)
}
