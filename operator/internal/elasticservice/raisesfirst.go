package elasticservice

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/affected"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/times"
)

// justSlept is how long after a sleep its pods may still be there, and a pass lets clients go to those that
// stay: as long as Kubernetes lets them take to end.
const justSlept = 30 * time.Second

// raisesFirst is when a pass is to come again that lets targets be scaled up first; 0: it goes on.
func (r *Reconciler) raisesFirst(ctx context.Context, req reconcile.Request) time.Duration {
	return r.passes.Again(req.NamespacedName, func() raising.Work {
		es := &v1alpha1.ElasticService{}
		// A pass in turn with all others is one of a few already. The object is only read.
		if r.backlog.Took(req) || r.firsts.Took(req) || r.Client.Get(ctx, req.NamespacedName, es, client.UnsafeDisableDeepCopy) != nil {
			return raising.Prompt
		}
		return r.workOf(ctx, es)
	})
}

// workOf is what a pass of an ElasticService is for others' raises. One that sleeps or wakes can wait for
// those, unless others wake by that pass, or clients get pods from before the sleep by it.
func (r *Reconciler) workOf(ctx context.Context, es *v1alpha1.ElasticService) raising.Work {
	s := &es.Status
	switch {
	case s.Phase != v1alpha1.PhaseAsleep && s.Phase != v1alpha1.PhaseWaking, !es.DeletionTimestamp.IsZero(),
		len(s.PodsBeforeSleep) > 0 && r.Now().Sub(times.Micro(s.LastSleepTime)) < justSlept,
		len(es.Spec.WakeWith) > 0, len(affected.Finder{Client: r.Client}.ByWakeWith(ctx, es)) > 0:
		return raising.Prompt
	}
	return raising.Patient
}
