package gametype

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// services is the result of keeping the Service and the ElasticService.
type services struct {
	// ready is the condition ServiceReady.
	ready metav1.Condition
	// phase is the ElasticService's phase.
	phase v1alpha1.Phase
	// made are the kinds of those that were created.
	made []string
	// refused is set where the API server refuses one of them, and stale where somebody else
	// has just changed one.
	refused, stale bool
}

// keepServices keeps the Service and the ElasticService of the GameType's name. If one of them
// belongs to somebody else the other isn't created: it would put a foreign Service to sleep, or
// lead this one's players nowhere.
func (r *Reconciler) keepServices(ctx context.Context, gt *v1alpha1.GameType) (services, error) {
	const kind = v1alpha1.ConditionServiceReady
	var s services
	if len(servicePorts(gt)) == 0 {
		s.ready = condition.False(kind, reasons.NoPorts, "The template has no ports with a containerPort, which a Service needs: give it one in template.spec.ports.")
		return s, nil
	}
	service, es := &corev1.Service{}, &v1alpha1.ElasticService{}
	for _, o := range []client.Object{service, es} {
		name := "Service"
		if o == client.Object(es) {
			name = "ElasticService"
		}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(gt), o); client.IgnoreNotFound(err) != nil {
			return s, fmt.Errorf("read %s %s: %w", name, client.ObjectKeyFromObject(gt), err)
		}
		if o.GetUID() != "" && !metav1.IsControlledBy(o, gt) {
			s.ready = condition.False(kind, reasons.NameTaken,
				"There is a %s named %s that isn't this GameType's, and it is left alone: delete or rename it, or give the GameType another name.", name, gt.Name)
		}
	}
	if s.ready.Type != "" {
		return s, nil
	}
	shape := func() { shapeService(gt, service) }
	if done, err := r.keep(ctx, gt, "Service", service, shape, &s); !done {
		return s, err
	}
	shape = func() { shapeElasticService(gt, es) }
	if done, err := r.keep(ctx, gt, "ElasticService", es, shape, &s); !done {
		return s, err
	}
	s.phase = es.Status.Phase
	switch c := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionReady); {
	case c == nil:
		s.ready = condition.Unknown(kind, reasons.NotReported, "The ElasticService has said nothing yet.")
	case c.Status == metav1.ConditionTrue:
		s.ready = condition.True(kind, reasons.OK, "Players reach the game through Service %s.", gt.Name)
	default:
		s.ready = condition.Unknown(kind, c.Reason, "ElasticService %s: %s", gt.Name, text.Bounded(c.Message))
		s.ready.Status = c.Status
	}
	return s, nil
}

// keep creates or changes an object that isn't as desired. It reports whether it now is.
func (r *Reconciler) keep(ctx context.Context, gt *v1alpha1.GameType, name string, o client.Object, shape func(), s *services) (bool, error) {
	var err error
	if o.GetUID() == "" {
		o.SetNamespace(gt.Namespace)
		o.SetName(gt.Name)
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(gt, kind)})
		shape()
		if err = r.Client.Create(ctx, o); err == nil {
			s.made = append(s.made, name)
		}
	} else {
		before, ok := o.DeepCopyObject().(client.Object)
		if shape(); ok && !equality.Semantic.DeepEqual(before, o) {
			err = r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		}
	}
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		s.stale = true
		s.ready = condition.Unknown(v1alpha1.ConditionServiceReady, reasons.Pending, "%s %s is just being changed.", name, gt.Name)
		return false, nil
	case refusal.Is(err):
		s.refused = true
		s.ready = condition.False(v1alpha1.ConditionServiceReady, reasons.ServiceRefused, "The API server refuses %s %s: %s", name, gt.Name, words(err))
		return false, nil
	default:
		return false, fmt.Errorf("write %s %s: %w", name, client.ObjectKeyFromObject(gt), err)
	}
}
