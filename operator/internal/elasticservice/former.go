package elasticservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/target"
)

// wakeFormer gives a target its replicas back that was put to sleep before
// spec.scaleTargetRef named another: nobody else would. One that another ElasticService
// has by now is that one's. The flaw, if there is one, says why it can't be done.
func (r *Reconciler) wakeFormer(ctx context.Context, now time.Time, es *v1alpha1.ElasticService) (flaw *obstacle, err error) {
	former := es.Status.AsleepTarget
	if former == nil || target.Same(former.ScaleTargetRef, es.Spec.ScaleTargetRef) || patienceOver(now, es) {
		return nil, nil
	}
	taken, err := r.hasElastic(ctx, es, former.ScaleTargetRef)
	if err != nil {
		return nil, err
	}
	if !taken {
		ref := target.Ref{ScaleTargetRef: former.ScaleTargetRef, Namespace: es.Namespace}
		raised, err := r.Scaler.RaiseTo(ctx, ref, target.Replicas{AtLeast: 1, FromZero: max(former.Replicas, 1)})
		switch {
		case isUserError(err): // it is gone, and so is what was to do
		case err != nil:
			return &obstacle{v1alpha1.ReasonFormerTargetAsleep, fmt.Sprintf(
				"Dormouse had put %s to sleep before spec.scaleTargetRef named another target, and can't scale it up again (%s): it tries again; or scale it up yourself.", ref, refusal.Words(err))}, nil
		case raised.After > raised.Before:
			emit(r.Events, es, []notice{{corev1.EventTypeNormal, "FormerTargetAwake", "Wake", fmt.Sprintf(
				"%s %s isn't the target any more and was asleep: scaled it from %d to %d replicas.", former.Kind, former.Name, raised.Before, raised.After)}})
		}
	}
	es.Status.AsleepTarget = nil
	return nil, nil
}

// hasElastic says that another ElasticService has a target.
func (r *Reconciler) hasElastic(ctx context.Context, es *v1alpha1.ElasticService, ref v1alpha1.ScaleTargetRef) (bool, error) {
	var list v1alpha1.ElasticServiceList
	err := r.Client.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingFields{indexTarget: ref.Kind + "/" + ref.Name})
	if err != nil {
		return false, fmt.Errorf("list ElasticServices of %s %s/%s: %w", ref.Kind, es.Namespace, ref.Name, err)
	}
	for i := range list.Items {
		if list.Items[i].UID != es.UID && target.Same(list.Items[i].Spec.ScaleTargetRef, ref) {
			return true, nil
		}
	}
	return false, nil
}
