package elasticservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/lookout"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakestages"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/times"
)

// updateStatus finds out why no server is up, writes the status, and returns when to look
// again.
func (r *Reconciler) updateStatus(ctx context.Context, p *pass) (reconcile.Result, error) {
	var requeueAfter time.Duration
	p.found.Cause, requeueAfter = r.diagnose(ctx, p)
	p.plan.RequeueAfter.AtMost(requeueAfter)
	r.keepAutoscaler(ctx, p)
	if err := r.writeStatus(ctx, p); err != nil {
		return reconcile.Result{}, err
	}
	r.timeWake(ctx, p)
	if !p.raised.IsZero() {
		p.state.wake.Raised(p.raised)
	}
	if p.observed.Scale.Err != nil || p.found.Flaw != nil || p.observed.Autoscaler.Untold || p.state.autoscaler != nil && p.state.autoscaler.Failed != nil {
		p.plan.RequeueAfter.AtMost(missingRetry)
	}
	return reconcile.Result{RequeueAfter: p.plan.RequeueAfter.Duration()}, nil
}

func (r *Reconciler) writeStatus(ctx context.Context, p *pass) error {
	es, m, before := p.es, p.state, p.original.Status.Phase
	status.Set(p.now, es, p.observed, p.found, p.plan)
	if m.lastWake != nil {
		es.Status.LastWake = m.lastWake
	}
	if saved := es.Status.Saved; saved != nil && before == v1alpha1.PhaseAsleep && es.Status.Phase != before {
		saved.Amount = r.Prices.Amount(saved)
	}
	if p.plan.Phase != v1alpha1.PhaseFallingAsleep {
		m.stayAwake()
	}
	if err := r.patchStatus(ctx, m, p.original, es); err != nil {
		return err
	}
	m.target = target.Of(es)
	m.lastSleep.wrote(&es.Status)
	if p.plan.Phase == v1alpha1.PhaseFallingAsleep && before != p.plan.Phase {
		begun := times.Micro(es.Status.LastWakeTime)
		m.sleepBegun = &begun
	}
	if before != p.plan.Phase {
		r.Metrics.PhaseChanged(string(p.plan.Phase))
	}
	r.tellObstacle(p, p.found.Flaw)
	kit.Emit(r.Events, es, status.Events(p.original, es, p.plan)...)
	kit.Emit(r.Events, es, m.diagnosis.Events(p.original, es, p.found.Cause)...)
	return nil
}

// patchStatus writes the status of an object that a pass has changed, and remembers what is there then.
func (r *Reconciler) patchStatus(ctx context.Context, m *state, original, changed *v1alpha1.ElasticService) error {
	wrote, err := patch.Status(ctx, r.Client, original, changed)
	if wrote {
		m.wrote(changed)
	}
	return err
}

// stop reports an obstacle and leaves everything else as it is.
func (r *Reconciler) stop(ctx context.Context, p *pass, ob *obstacle.Obstacle) (reconcile.Result, error) {
	p.found.Obstacle = ob
	p.plan.Phase = "" // a sleep that was planned doesn't begin, so nothing is paused for it
	r.keepAutoscaler(ctx, p)
	status.Set(p.now, p.es, p.observed, p.found, planner.Plan{Phase: p.es.Status.Phase, Mode: p.es.Status.Mode})
	if err := r.patchStatus(ctx, p.state, p.original, p.es); err != nil {
		return reconcile.Result{}, err
	}
	p.state.stayAwake()
	r.tellObstacle(p, ob)
	if next := p.observed.Unsettled.Next; !next.IsZero() {
		return reconcile.Result{RequeueAfter: min(max(next.Sub(p.now), minAskPeriod), missingRetry)}, nil
	}
	return reconcile.Result{RequeueAfter: missingRetry}, nil
}

// tellObstacle emits an event about an obstacle once; nil is none.
func (r *Reconciler) tellObstacle(p *pass, ob *obstacle.Obstacle) {
	m, message := p.state, ""
	if ob != nil {
		message = ob.Message
	}
	if m.lastObstacle == message {
		return
	}
	if m.lastObstacle = message; ob != nil {
		kit.Emit(r.Events, p.es, kit.Warning(ob.Reason, "Reconcile", "%s", ob.Message))
	}
}

// wakePodsTime bounds the look at the pods of a wake that is over.
const wakePodsTime = 2 * time.Second

// lastWakeDelay is how long a wake that is over stays unwritten: a later pass most often has more
// to write, and nobody waits for this.
const lastWakeDelay = 2 * time.Second

// timeWake measures a wake once it is over: a server was up when the pass observed, and the
// Service's endpoints were written when its plan was applied. The next pass writes it.
func (r *Reconciler) timeWake(ctx context.Context, p *pass) {
	wake := &p.state.wake
	if p.observed.Scale.Err != nil || !wake.Pass(p.es, p.observed.Scale.Replicas, p.plan.Phase) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wakePodsTime)
	defer cancel()
	pods, _, err := r.podsOf(ctx, p.es, p.observed)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "measure the stages of a wake")
	}
	last := wake.Took(p.es, p.now, p.applied, pods)
	wakestages.Observe(r.Metrics, last)
	p.state.lastWake = last
	p.plan.RequeueAfter.AtMost(lastWakeDelay)
}

// +kubebuilder:rbac:groups="",resources=pods;events,verbs=list

// diagnoseEvents bounds how many events one look reads.
const diagnoseEvents = 50

// diagnose finds out why a service that wakes has no server. It runs after the endpoints are
// written, so that no player waits for it. Once a server is late the reads over the network
// happen beside the passes.
func (r *Reconciler) diagnose(ctx context.Context, p *pass) (cause *diagnosis.Finding, requeueAfter time.Duration) {
	now, o, queued := p.now, p.observed, p.plan.Queued
	if len(p.plan.WaitsFor) > 0 {
		queued = 0 // they don't wait for this one's servers
	}
	return r.lookouts.Diagnose(ctx, &p.state.diagnosis, lookout.Case{
		Now: now, Service: p.es, Observed: o, Queued: queued, Generation: p.state.scale.of.generation,
		Look: func(ctx context.Context, es *v1alpha1.ElasticService, since time.Time) (diagnosis.Finding, error) {
			return r.look(ctx, now, es, o, since)
		},
	})
}

// look reads the target's pods, and what else may explain why none is up.
func (r *Reconciler) look(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o planner.Observed, since time.Time) (diagnosis.Finding, error) {
	r.Raises.Wait(ctx, raising.Prompt)
	ref := target.Of(es)
	in := diagnosis.Input{Target: diagnosis.Target{Kind: ref.Kind, Name: ref.Name}, Since: since}
	pods, all, err := r.podsOf(ctx, es, o)
	if err != nil {
		return diagnosis.Finding{}, err
	}
	in.Pods, in.All = pods, all
	if found := diagnosis.NotSelected(o.Service, in.Target, pods); found != nil {
		return *found, nil
	}
	if len(pods) == 0 {
		// Kinds that the operator may not read are explained without their conditions.
		in.Target.UID, in.Target.Conditions, _ = r.Scaler.Status(ctx, ref)
	}
	found := diagnosis.Explain(now, in)
	if found.Ask == nil {
		return found, nil
	}
	var list corev1.EventList
	err = r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.Limit(diagnoseEvents), client.MatchingFieldsSelector{
		Selector: fields.SelectorFromSet(fields.Set{"involvedObject.uid": string(found.Ask.UID), "type": corev1.EventTypeWarning}),
	})
	if err != nil {
		return diagnosis.Finding{}, fmt.Errorf("list events of %s %s/%s: %w", found.Ask.Kind, es.Namespace, found.Ask.Name, err)
	}
	in.Events = append([]corev1.Event{}, list.Items...)
	return diagnosis.Explain(now, in), nil
}
