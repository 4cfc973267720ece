// Package affected finds the ElasticServices to which a change of another object may matter.
package affected

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// Finder finds them in the cache.
type Finder struct {
	// Client reads from the cache.
	Client client.Client
}

// ByService finds the ElasticServices of a Service, or of a slice's Service: the user's own
// Service, the private one beside it, or a stranger with the private one's name.
func (f Finder) ByService(ctx context.Context, o client.Object) []reconcile.Request {
	if public := o.GetLabels()[wellknown.PrivateServiceLabel]; public != "" {
		return found(index.OfService(ctx, f.Client, o.GetNamespace(), public))
	}
	return append(found(index.OfService(ctx, f.Client, o.GetNamespace(), o.GetName())),
		found(index.OfPrivateService(ctx, f.Client, o.GetNamespace(), o.GetName()))...)
}

func found(list []v1alpha1.ElasticService, err error) []reconcile.Request {
	if err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	return index.Requests(list)
}

// BySibling finds the other ElasticServices of the same Service or target: one of them takes
// over when this one is gone.
func (f Finder) BySibling(ctx context.Context, o client.Object) []reconcile.Request {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	return append(found(index.OfService(ctx, f.Client, es.Namespace, es.Spec.Service)),
		found(index.OfTarget(ctx, f.Client, es.Namespace, index.TargetOf(es)))...)
}

// ByTarget finds the ElasticServices of a target of this kind.
func (f Finder) ByTarget(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return found(index.OfTarget(ctx, f.Client, o.GetNamespace(), kind+"/"+o.GetName()))
	}
}

// ByAutoscaler finds the ElasticServices of a GameAutoscaler's target.
func (f Finder) ByAutoscaler(ctx context.Context, o client.Object) []reconcile.Request {
	gas, ok := o.(*v1alpha1.GameAutoscaler)
	if !ok {
		return nil
	}
	return found(index.OfTarget(ctx, f.Client, gas.Namespace, index.AutoscalerTargetOf(gas)))
}

// ByNodePort finds the ElasticServices with a UDP port that is a Service's node port.
func (f Finder) ByNodePort(ctx context.Context, o client.Object) []reconcile.Request {
	svc, ok := o.(*corev1.Service)
	if !ok {
		return nil
	}
	return f.byUDPPorts(ctx, udpports.NodePorts(svc), svc)
}

// ByHostPort finds the ElasticServices with a UDP port that is a Server's host port.
func (f Finder) ByHostPort(ctx context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*v1alpha1.Server)
	if !ok {
		return nil
	}
	return f.byUDPPorts(ctx, udpports.HostPorts(s), s)
}

// byUDPPorts finds the ElasticServices with one of the numbers to which it matters who has that
// number: those without a clash so far, and those whose condition names this object. Thousands
// may have the number of a game's usual port.
func (f Finder) byUDPPorts(ctx context.Context, numbers []int32, of client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, number := range numbers {
		services, err := udpports.ServicesWith(ctx, f.Client, number)
		if err != nil {
			return nil // only when the cache has stopped, and so has the operator
		}
		for i := range services {
			list, err := index.OfService(ctx, f.Client, services[i].Namespace, services[i].Name)
			if err != nil {
				return nil
			}
			for j := range list {
				if es := &list[j]; concerns(es, client.ObjectKeyFromObject(of)) {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)})
				}
			}
		}
	}
	return requests
}

// concerns reports whether it may matter to an ElasticService that an object got or lost a port
// number.
func concerns(es *v1alpha1.ElasticService, key client.ObjectKey) bool {
	c := meta.FindStatusCondition(es.Status.Conditions, conditions.UDPSessionsKept)
	return c == nil || c.Status != metav1.ConditionFalse || strings.Contains(c.Message, key.String())
}

// ByServer finds the ElasticServices whose target has a Server.
func (f Finder) ByServer(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, owner := range report.Owners(o) {
		requests = append(requests, found(index.OfTarget(ctx, f.Client, o.GetNamespace(), owner))...)
	}
	return requests
}

// ByPlayerList finds the ElasticServices whose players a ConfigMap lists.
func (f Finder) ByPlayerList(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Find(ctx, f.Client, client.InNamespace(o.GetNamespace()), client.MatchingFields{index.Players: o.GetName()})
}

// ByFront finds the ElasticServices that share a Service.
func (f Finder) ByFront(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Find(ctx, f.Client, client.MatchingFields{index.Front: client.ObjectKeyFromObject(o).String()})
}

// ByHost finds the ElasticServices that want one of this one's hosts at the same front.
func (f Finder) ByHost(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for i, key := range index.FrontKeys(o) {
		if i > 0 { // the first key is for all hosts
			requests = append(requests, index.Find(ctx, f.Client, client.MatchingFields{index.Front: key})...)
		}
	}
	return requests
}

// ByHPA finds the ElasticServices that name a HorizontalPodAutoscaler.
func (f Finder) ByHPA(ctx context.Context, o client.Object) []reconcile.Request {
	return f.byAutoscalerNamed(ctx, v1alpha1.AutoscalerHPA, client.ObjectKeyFromObject(o))
}

// ByScaledObject finds the ElasticServices that name a ScaledObject.
func (f Finder) ByScaledObject(ctx context.Context, key client.ObjectKey) []reconcile.Request {
	return f.byAutoscalerNamed(ctx, v1alpha1.AutoscalerKEDA, key)
}

func (f Finder) byAutoscalerNamed(ctx context.Context, kind v1alpha1.AutoscalerKind, key client.ObjectKey) []reconcile.Request {
	return index.Find(ctx, f.Client, client.InNamespace(key.Namespace), client.MatchingFields{index.Autoscaler: string(kind) + "/" + key.Name})
}
