package elasticservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/lookout"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/target"
)

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
