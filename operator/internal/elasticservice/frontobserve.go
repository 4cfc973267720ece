package elasticservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// indexFront finds ElasticServices by the Service that they share, and by that and
// one of their hosts.
const indexFront = "spec.front"

func frontHostKey(front types.NamespacedName, host v1alpha1.FrontHost) string {
	return front.String() + "/" + string(host)
}

// frontKeys are an ElasticService's keys in indexFront.
func frontKeys(o client.Object) []string {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok || es.Spec.Front == nil {
		return nil
	}
	front, _ := frontOf(es)
	keys := []string{front.String()}
	for _, host := range es.Spec.Front.Hosts {
		keys = append(keys, frontHostKey(front, host))
	}
	return keys
}

// observeFront looks at the Service that is to be shared, and at who has the same
// hosts there.
func (r *Reconciler) observeFront(ctx context.Context, es *v1alpha1.ElasticService, o *observed) error {
	key, ok := frontOf(es)
	if !ok || !r.Namespaces.Has(key.Namespace) {
		return nil
	}
	svc := &corev1.Service{}
	if err := r.Client.Get(ctx, key, svc); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read Service %s: %w", key, err)
	}
	o.front.service = svc
	elastic, err := ForService(ctx, r.Client, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	if elastic != nil {
		o.front.elastic = elastic.Name
	}
	for _, host := range es.Spec.Front.Hosts {
		var list v1alpha1.ElasticServiceList
		if err := r.Client.List(ctx, &list, client.MatchingFields{indexFront: frontHostKey(key, host)}); err != nil {
			return fmt.Errorf("list the ElasticServices of host %s at the front %s: %w", host, key, err)
		}
		for i := range list.Items {
			other := &list.Items[i]
			if other.UID == es.UID || !olderThan(other, es) || !mayShare(svc, other.Namespace) {
				continue
			}
			if o.front.rivals == nil {
				o.front.rivals = map[v1alpha1.FrontHost]string{}
			}
			o.front.rivals[host] = "ElasticService " + other.Name
			if other.Namespace != es.Namespace {
				o.front.rivals[host] = "an ElasticService of another namespace"
			}
		}
	}
	return nil
}

// keepFront writes what the ElasticService gets of its front into its status.
func (r *Reconciler) keepFront(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o *observed) {
	key, _ := frontOf(es)
	es.Status.Front, o.front.obstacle = planFront(es, o.front, func(port string) (int32, *obstacle) {
		number, err := r.ports.allocate(now, frontOwner(key, port), func(port int32) bool { return r.portInSlice(ctx, port) })
		if err != nil {
			return 0, r.ports.exhausted(err, key.Namespace, "the front "+key.String())
		}
		return number, nil
	})
}

// frontOwner is whose a resolver port is that many ElasticServices share.
func frontOwner(front types.NamespacedName, port string) portOwner {
	return portOwner{front.Namespace, types.UID("front/" + front.String()), port, corev1.ProtocolTCP}
}

// byFront finds the ElasticServices that share a Service.
func (r *Reconciler) byFront(ctx context.Context, o client.Object) []reconcile.Request {
	return r.find(ctx, client.MatchingFields{indexFront: client.ObjectKeyFromObject(o).String()})
}

// byHost finds the ElasticServices that have a host of this one at the same front.
func (r *Reconciler) byHost(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for i, key := range frontKeys(o) {
		if i > 0 { // the first is that of all hosts
			requests = append(requests, r.find(ctx, client.MatchingFields{indexFront: key})...)
		}
	}
	return requests
}

// hostsMoved lets through what may give a host to another ElasticService. Those that
// are there when the operator starts all have a pass of their own.
func hostsMoved() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
			after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
			return ok1 && ok2 && before.Generation != after.Generation && !sameFront(before.Spec.Front, after.Spec.Front)
		},
	}
}
