package elasticservice

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/savings"
	"dormouse.dev/dormouse/operator/internal/target"
)

// prepare keeps what a plan builds on: a former target, the resolver ports, the private Service
// and the part of a front. It returns an obstacle that prevents everything else. Any other is
// noted as a flaw.
func (r *Reconciler) prepare(ctx context.Context, p *pass) (*obstacle.Obstacle, error) {
	var former, strangers *obstacle.Obstacle
	if was := p.es.Status.AsleepTarget; was != nil && !target.Same(was.ScaleTargetRef, p.es.Spec.ScaleTargetRef) && !patienceOver(p.now, p.es) {
		var err error
		if former, err = r.wakeFormer(ctx, p.now, p.es); err != nil {
			return nil, err
		}
		p.found.Former = former != nil
	}
	if len(p.observed.Strangers) > 0 {
		strangers = planner.StrangersFlaw(p.es, p.observed)
	}
	blocked, err := r.keepPortsAndService(ctx, p)
	p.found.Flaw = cmp.Or(p.found.Flaw, former, planner.DisksFlaw(p.es, p.observed), strangers)
	switch {
	case blocked != nil || err != nil:
		front.Refresh(p.es, p.observed.Front.Service)
	case p.es.Spec.Front != nil:
		r.keepFront(ctx, p)
	default:
		p.es.Status.Front = nil
	}
	if err != nil && !p.observed.NamespaceEnding && !patienceOver(p.now, p.es) {
		return nil, err
	}
	p.found.NeverStarted = blocked != nil && p.es.Status.Phase == ""
	return blocked, nil
}

// keepPortsAndService keeps the resolver ports and the private Service.
func (r *Reconciler) keepPortsAndService(ctx context.Context, p *pass) (*obstacle.Obstacle, error) {
	es, o := p.es, p.observed
	if ob := planner.CheckService(es, o); ob != nil {
		return ob, nil
	}
	of := preparedOf{generation: es.Generation, service: o.Service.ResourceVersion, selector: o.Scale.Selector}
	if o.Private != nil {
		of.private = o.Private.ResourceVersion
	}
	is := maphash.Comparable(seed, of)
	if p.state.prepared == is && slices.Equal(es.Status.Ports, p.state.ports) && es.Status.PrivateService == o.PrivateName {
		return nil, nil
	}
	p.state.prepared = 0
	ports, flaw := resolverports.Assign(p.now, es, o.Service, r.Ports, func(port int32) bool { return r.Ports.InSlice(ctx, port) })
	if len(ports) == 0 {
		return flaw, nil
	}
	es.Status.Ports, p.found.Flaw = ports, flaw
	p.state.ports = ports

	if o.Scale.Err != nil && len(o.Service.Spec.Selector) == 0 {
		return nil, nil // the selector is not known; TargetFound explains why
	}
	same, ob, err := r.keepPrivateService(ctx, es, o)
	switch {
	case err != nil:
		return nil, err
	case ob != nil && es.Status.Phase == "":
		return ob, nil // nobody relies on Dormouse yet
	case ob != nil:
		p.found.Flaw = ob
	case same && flaw == nil:
		p.state.prepared = is
	}
	return nil, nil
}

// keepPrivateService brings the private Service to the wanted state, and reports whether it was in
// that already, or what prevents it.
func (r *Reconciler) keepPrivateService(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed) (same bool, ob *obstacle.Obstacle, err error) {
	selector, ob := endpoints.PodSelector(o.Service, o.Scale.Selector)
	if ob != nil {
		return false, ob, nil
	}
	desired := endpoints.PrivateService(es, o.PrivateName, o.Service, selector)
	es.Status.PrivateService = desired.Name
	if o.Private != nil && !metav1.IsControlledBy(o.Private, es) {
		return false, obstacle.New(reasons.NameTaken,
			"Dormouse needs a Service named %s and somebody else's is there: delete or rename it.", desired.Name), nil
	}
	if o.Private != nil && endpoints.SamePrivateService(o.Private, desired) {
		return true, nil, nil
	}
	err = patch.Apply(ctx, r.Client, fieldOwner, desired)
	if refusal.Is(err) {
		return false, obstacle.New(reasons.Refused,
			"The API server refuses the Service %s, by which Dormouse finds the target's pods (%s): change what refuses it.", desired.Name, refusal.Words(err)), nil
	}
	return false, nil, err
}

// keepFront writes the ElasticService's part of its front into its status.
func (r *Reconciler) keepFront(ctx context.Context, p *pass) {
	key, _ := index.FrontOf(p.es)
	p.es.Status.Front, p.found.Front = front.Plan(p.es, p.observed.Front, func(port string) (int32, *obstacle.Obstacle) {
		number, err := r.Ports.Allocate(p.now, resolverports.OfFront(key, port), func(port int32) bool { return r.Ports.InSlice(ctx, port) })
		if err != nil {
			return 0, r.Ports.Exhausted(err, key.Namespace, "the front "+key.String())
		}
		return number, nil
	})
}

// wakeFormer restores the replicas of a former target, which was put to sleep before
// spec.scaleTargetRef named another: nobody else would. If another ElasticService has that target
// by now, it is left alone. The flaw, if there is one, explains why it can't be done.
func (r *Reconciler) wakeFormer(ctx context.Context, now time.Time, es *v1alpha1.ElasticService) (flaw *obstacle.Obstacle, err error) {
	former := es.Status.AsleepTarget
	taken, err := r.hasElastic(ctx, es, former.ScaleTargetRef)
	if err != nil {
		return nil, err
	}
	if !taken {
		ref := target.Ref{ScaleTargetRef: former.ScaleTargetRef, Namespace: es.Namespace}
		raised, err := r.Scaler.RaiseTo(ctx, ref, target.Replicas{AtLeast: 1, FromZero: max(former.Replicas, 1)})
		switch {
		case target.IsUserError(err): // it is gone, and there is nothing left to do
		case err != nil:
			return obstacle.New(reasons.FormerTargetAsleep,
				"Dormouse had put %s to sleep before spec.scaleTargetRef named another target, and can't scale it up again (%s): it tries again; or scale it up yourself.", ref, refusal.Words(err)), nil
		case raised.After > raised.Before:
			kit.Emit(r.Events, es, kit.Normal("FormerTargetAwake", "Wake",
				"%s %s isn't the target any more and was asleep: scaled it from %d to %d replicas.", former.Kind, former.Name, raised.Before, raised.After))
		}
	}
	es.Status.AsleepTarget, es.Status.ReplicasBeforeSleep = nil, 0 // neither is of the new target
	savings.Leave(now, &es.Status)
	if saved := es.Status.Saved; saved != nil {
		saved.Amount = r.Prices.Amount(saved)
	}
	return nil, nil
}

// hasElastic reports whether another ElasticService has the target.
func (r *Reconciler) hasElastic(ctx context.Context, es *v1alpha1.ElasticService, ref v1alpha1.ScaleTargetRef) (bool, error) {
	list, err := index.OfTarget(ctx, r.Client, es.Namespace, ref.Kind+"/"+ref.Name)
	return slices.ContainsFunc(list, func(other v1alpha1.ElasticService) bool {
		return other.UID != es.UID && target.Same(other.Spec.ScaleTargetRef, ref)
	}), err
}
