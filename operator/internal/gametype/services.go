package gametype

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/gametype/publish"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/text"
)

// services is the result of keeping the Service and the ElasticService.
type services struct {
	// ready is the condition ServiceReady.
	ready metav1.Condition
	// phase is the ElasticService's phase.
	phase v1alpha1.Phase
	// address is where players come to.
	address string
	// made are the kinds of those that were created.
	made []string
	// refused is set where the API server refuses one of them, and stale where somebody else
	// has just changed one.
	refused, stale bool
}

// keepServices keeps the Service and the ElasticService of the GameType's name. If one of them
// belongs to somebody else the other isn't created: it would put a foreign Service to sleep, or
// lead this one's players nowhere.
func (r *Reconciler) keepServices(ctx context.Context, gt *v1alpha1.GameType, old []publish.OldPort) (services, error) {
	const ready = conditions.ServiceReady
	var s services
	ports := publish.Ports(gt)
	if len(ports) == 0 {
		s.ready = condition.False(ready, reasons.NoPorts, "The template has no ports with a containerPort, which a Service needs: give it one in template.spec.ports.")
		return s, nil
	}
	service, es := &corev1.Service{}, &v1alpha1.ElasticService{}
	both := []struct {
		kind   string
		object client.Object
		shape  func()
	}{
		{"Service", service, func() { publish.Service(gt, ports, service, old) }},
		{"ElasticService", es, func() { publish.ElasticService(gt, es, service.Spec.Ports) }},
	}
	// Does somebody else have the name?
	for _, k := range both {
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(gt), k.object); client.IgnoreNotFound(err) != nil {
			return s, fmt.Errorf("read %s %s: %w", k.kind, client.ObjectKeyFromObject(gt), err)
		}
		if k.object.GetUID() != "" && !metav1.IsControlledBy(k.object, gt) {
			s.ready = condition.False(ready, reasons.NameTaken,
				"There is a %s named %s that isn't this GameType's, and it is left alone: delete or rename it, or give the GameType another name.", k.kind, gt.Name)
		}
	}
	if s.ready.Type != "" {
		return s, nil
	}
	// Create or change what isn't as desired.
	for _, k := range both {
		var err error
		if o := k.object; o.GetUID() == "" {
			o.SetNamespace(gt.Namespace)
			o.SetName(gt.Name)
			o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(gt, kind)})
			k.shape()
			if err = r.Client.Create(ctx, o); err == nil {
				s.made = append(s.made, k.kind)
			}
		} else {
			before, ok := o.DeepCopyObject().(client.Object)
			if k.shape(); ok && !equality.Semantic.DeepEqual(before, o) {
				err = r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			}
		}
		switch {
		case err == nil:
		case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
			s.stale = true
			s.ready = condition.Unknown(ready, reasons.Pending, "%s %s is just being changed.", k.kind, gt.Name)
			return s, nil
		case refusal.Is(err):
			s.refused = true
			s.ready = condition.False(ready, reasons.ServiceRefused, "The API server refuses %s %s: %s", k.kind, gt.Name, words(err))
			return s, nil
		default:
			return s, fmt.Errorf("write %s %s: %w", k.kind, client.ObjectKeyFromObject(gt), err)
		}
	}
	// Both are: what does the ElasticService report?
	s.phase, s.address = es.Status.Phase, publish.Address(gt, service)
	switch c := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready); {
	case c == nil:
		s.ready = condition.Unknown(ready, reasons.NotReported, "The ElasticService has said nothing yet.")
	case c.Status == metav1.ConditionTrue:
		s.ready = condition.True(ready, reasons.OK, "Players reach the game through Service %s.", gt.Name)
	default:
		s.ready = condition.Unknown(ready, c.Reason, "ElasticService %s: %s", gt.Name, text.Bounded(c.Message))
		s.ready.Status = c.Status
	}
	return s, nil
}

// mayHaveServers reports whether a Fleet has Servers, or may have.
func mayHaveServers(f *v1alpha1.Fleet) bool {
	return f.Status.Replicas+f.Status.DrainingReplicas+ptr.Deref(f.Spec.Replicas, 1) > 0 || f.Status.ObservedGeneration < f.Generation
}

// lacksPorts reports whether the private Service lacks ports that the Service is to have while old
// Servers are there.
func (r *Reconciler) lacksPorts(ctx context.Context, gt *v1alpha1.GameType, old []publish.OldPort) bool {
	service, private := &corev1.Service{}, &corev1.Service{}
	key := client.ObjectKeyFromObject(gt)
	if r.Client.Get(ctx, key, service) != nil {
		return false
	}
	key.Name = endpoints.PrivateServiceName(gt.Name)
	if r.Client.Get(ctx, key, private) != nil {
		return false
	}
	for _, want := range publish.PlanPorts(gt, publish.Ports(gt), service.Spec.Type, service.Spec.Ports, old) {
		if !slices.ContainsFunc(private.Spec.Ports, func(is corev1.ServicePort) bool {
			return is.Name == want.Name && is.Port == want.Port && is.TargetPort == want.TargetPort
		}) {
			return true
		}
	}
	return false
}
