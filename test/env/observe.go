package env

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// WaitFor watches an ElasticService until done says that it is as wanted, and
// gives it as it was then.
func (e *Env) WaitFor(ctx context.Context, key types.NamespacedName, what string, done func(*v1alpha1.ElasticService) bool) (*v1alpha1.ElasticService, error) {
	return Wait(ctx, e, &v1alpha1.ElasticServiceList{}, key, what, done)
}

// Wait watches an object until done says that it is as wanted, and gives it as it
// was then. An object that is deleted meanwhile is an error.
func Wait[T client.Object](ctx context.Context, e *Env, list client.ObjectList, key types.NamespacedName, what string, done func(T) bool) (T, error) {
	var last T
	seen := false
	kind := strings.TrimSuffix(fmt.Sprintf("%T", list)[strings.LastIndex(fmt.Sprintf("%T", list), ".")+1:], "List")
	w, err := e.Client.Watch(ctx, list, client.InNamespace(key.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", key.Name)})
	if err != nil {
		return last, fmt.Errorf("watch %s %s: %w", kind, key, err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			if !seen {
				return last, fmt.Errorf("wait until %s %s is %s: it was never seen: %w", kind, key, what, ctx.Err())
			}
			text, _ := json.Marshal(last) //nolint:errchkjson // what can't be told isn't
			return last, fmt.Errorf("wait until %s %s is %s: %w; it is %s", kind, key, what, ctx.Err(), text)
		case event, open := <-w.ResultChan():
			if !open {
				return last, fmt.Errorf("wait until %s %s is %s: the watch ended", kind, key, what)
			}
			object, ok := event.Object.(T)
			if !ok {
				continue
			}
			if event.Type == watch.Deleted {
				return last, fmt.Errorf("wait until %s %s is %s: it was deleted", kind, key, what)
			}
			last, seen = object, true
			if done(object) {
				return object, nil
			}
		}
	}
}

// WaitPhase waits until an ElasticService is in a phase and mode, and its
// endpoints are in sync.
func (e *Env) WaitPhase(ctx context.Context, key types.NamespacedName, phase v1alpha1.Phase, mode v1alpha1.Mode) (*v1alpha1.ElasticService, error) {
	return e.WaitFor(ctx, key, string(phase)+"/"+string(mode), func(es *v1alpha1.ElasticService) bool {
		return es.Status.Phase == phase && es.Status.Mode == mode && Condition(es, conditions.EndpointsInSync) == metav1.ConditionTrue
	})
}

// Condition is the status of one of an ElasticService's conditions.
func Condition(es *v1alpha1.ElasticService, kind string) metav1.ConditionStatus {
	for _, c := range es.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return metav1.ConditionUnknown
}

// ClusterIP is the address of a Service's port in a family.
func (e *Env) ClusterIP(ctx context.Context, key types.NamespacedName, port int32, family corev1.IPFamily) (string, error) {
	svc := &corev1.Service{}
	if err := e.Client.Get(ctx, key, svc); err != nil {
		return "", fmt.Errorf("read Service %s: %w", key, err)
	}
	for _, text := range svc.Spec.ClusterIPs {
		ip, err := netip.ParseAddr(text)
		if err == nil && ip.Is4() == (family == corev1.IPv4Protocol) {
			return net.JoinHostPort(text, strconv.Itoa(int(port))), nil
		}
	}
	return "", fmt.Errorf("service %s has no %s address", key, family)
}

// NodePort is the address of a Service's port on a node of the local cluster.
func (e *Env) NodePort(ctx context.Context, key types.NamespacedName, port int32, node int) (string, error) {
	svc := &corev1.Service{}
	if err := e.Client.Get(ctx, key, svc); err != nil {
		return "", fmt.Errorf("read Service %s: %w", key, err)
	}
	for _, p := range svc.Spec.Ports {
		if p.Port == port && p.NodePort != 0 {
			return net.JoinHostPort(e.Cluster.NodeAddrs(node)[0].String(), strconv.Itoa(int(p.NodePort))), nil
		}
	}
	return "", fmt.Errorf("service %s has no node port for %d", key, port)
}

// ResolverAddrs are the addresses of the resolver pods.
func (e *Env) ResolverAddrs(ctx context.Context) ([]netip.Addr, error) {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "dormouse-resolver"}); err != nil {
		return nil, fmt.Errorf("list resolver pods: %w", err)
	}
	var addrs []netip.Addr
	for _, pod := range pods.Items {
		for _, ip := range pod.Status.PodIPs {
			addr, err := netip.ParseAddr(ip.IP)
			if err != nil {
				return nil, fmt.Errorf("address of resolver pod %s: %w", pod.Name, err)
			}
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// WaitUntil calls done until it says yes or the context ends, which is an error. It is for what can't be
// watched. The longer it takes, the less often it asks, since many tests ask at once: it is 50 ms late at most,
// or a tenth of what it took, and never more than a second.
func WaitUntil(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	began := time.Now()
	for {
		ok, err := done(ctx)
		if ok {
			return nil
		}
		next := time.NewTimer(min(max(time.Since(began)/10, 50*time.Millisecond), time.Second))
		select {
		case <-ctx.Done():
			next.Stop()
			return fmt.Errorf("wait until %s: %w (last: %w)", what, ctx.Err(), err)
		case <-next.C:
		}
	}
}

// ResolverEndpoints counts the resolvers' endpoints of a Service, and those of
// them that get new clients.
func (e *Env) ResolverEndpoints(ctx context.Context, key types.NamespacedName) (all, ready int, err error) {
	var slices discoveryv1.EndpointSliceList
	err = e.Client.List(ctx, &slices, client.InNamespace(key.Namespace), client.MatchingLabels{
		discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: wellknown.ManagedBy,
	})
	if err != nil {
		return 0, 0, fmt.Errorf("list the EndpointSlices of Service %s: %w", key, err)
	}
	for _, s := range slices.Items {
		for _, ep := range s.Endpoints {
			if ep.TargetRef == nil || ep.TargetRef.Namespace != SystemNamespace {
				continue
			}
			all++
			if ep.Conditions.Ready == nil || *ep.Conditions.Ready {
				ready++
			}
		}
	}
	return all, ready, nil
}
