// Package udpports finds the port numbers that would end UDP players' sessions in
// the middle of the game.
//
// A UDP session through a Service exists only in the connection table (conntrack) of
// the node where it comes in. When its entry is deleted, the session's next datagram
// is a new one to kube-proxy, which sends it to any server that is ready: the player
// is thrown out. Two programs on a node delete entries by the number of the port that
// the client sent to, whatever the address:
//
//   - The network plugin for host ports (CNI's portmap) deletes all UDP entries of a
//     number when a Pod starts that has this number as a UDP host port:
//     https://github.com/containernetworking/plugins/pull/553
//   - kube-proxy, since Kubernetes 1.32, deletes with each change of UDP endpoints the
//     entries of a number that is some Service's UDP node port, unless they lead to
//     that Service's endpoints, in pkg/proxy/conntrack.
//
// So a number may not be a Service's UDP port and, at the same time, a Pod's UDP host
// port or another Service's UDP node port.
package udpports

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Keys of the cache's indexes.
const (
	// indexPort finds Services by the numbers to which their UDP clients send.
	indexPort = "dormouse.udp-port"
	// indexElastic finds the private Services of ElasticServices by their UDP ports,
	// which are those of the Service that players connect to.
	indexElastic = "dormouse.elastic-udp-port"
	// indexNodePort finds Services by their UDP node ports.
	indexNodePort = "dormouse.udp-node-port"
	// indexHostPort finds Servers by their UDP host ports.
	indexHostPort = "dormouse.udp-host-port"
)

// SetupIndexes adds the indexes that the functions of this package use.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	ofServices := func(numbers func(*corev1.Service) []int32) client.IndexerFunc {
		return func(o client.Object) []string { return texts(numbers(o.(*corev1.Service))) }
	}
	for _, i := range []struct {
		object client.Object
		key    string
		fn     client.IndexerFunc
	}{
		{&corev1.Service{}, indexPort, ofServices(Ports)},
		{&corev1.Service{}, indexElastic, ofServices(ElasticPorts)},
		{&corev1.Service{}, indexNodePort, ofServices(NodePorts)},
		{&v1alpha1.Server{}, indexHostPort, func(o client.Object) []string { return texts(HostPorts(o.(*v1alpha1.Server))) }},
	} {
		if err := indexer.IndexField(ctx, i.object, i.key, i.fn); err != nil {
			return fmt.Errorf("add the index %s: %w", i.key, err)
		}
	}
	return nil
}

// Ports are the numbers to which a Service's UDP clients send: its ports and its
// node ports. A headless Service has no clients of its own.
func Ports(svc *corev1.Service) []int32 {
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	return append(ports(svc), NodePorts(svc)...)
}

// ElasticPorts are the UDP ports of an ElasticService's private Service; none for any
// other Service.
func ElasticPorts(svc *corev1.Service) []int32 {
	owner := metav1.GetControllerOf(svc)
	if owner == nil || owner.Kind != "ElasticService" || svc.Labels[wellknown.PrivateServiceLabel] == "" {
		return nil
	}
	return ports(svc)
}

func ports(svc *corev1.Service) (numbers []int32) {
	for _, p := range svc.Spec.Ports {
		if p.Protocol == corev1.ProtocolUDP {
			numbers = append(numbers, p.Port)
		}
	}
	return numbers
}

// NodePorts are a Service's UDP node ports.
func NodePorts(svc *corev1.Service) (numbers []int32) {
	for _, p := range svc.Spec.Ports {
		if p.Protocol == corev1.ProtocolUDP && p.NodePort != 0 {
			numbers = append(numbers, p.NodePort)
		}
	}
	return numbers
}

// HostPorts are a Server's UDP host ports: those of its spec, and those that were
// picked for it.
func HostPorts(s *v1alpha1.Server) (numbers []int32) {
	picked := map[string]int32{}
	for _, p := range s.Status.Ports {
		picked[p.Name] = p.Port
	}
	for _, p := range s.Spec.Ports {
		overUDP := slices.Contains(p.Protocol.Transports(), corev1.ProtocolUDP)
		onNode := p.Expose == v1alpha1.ExposeHostPort || p.Expose == v1alpha1.ExposePassthrough
		if !overUDP || !onNode {
			continue
		}
		number := p.HostPort
		if number == 0 {
			number = picked[p.Name]
		}
		if number != 0 {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// Services finds out which numbers are UDP ports of Services.
type Services struct {
	// Cache has the indexes of [SetupIndexes].
	Cache client.Reader
}

// Elastic reports whether a number is a UDP port of an ElasticService's Service.
func (s Services) Elastic(number int32) bool { return s.any(indexElastic, number) }

// Any reports whether UDP clients of any Service send to a number.
func (s Services) Any(number int32) bool { return s.any(indexPort, number) }

func (s Services) any(index string, number int32) bool {
	list, err := services(context.Background(), s.Cache, index, number, client.Limit(1))
	return err == nil && len(list) > 0 // an error only when the cache has stopped, and so has the operator
}

// ServicesWith are the Services whose UDP clients send to a number.
func ServicesWith(ctx context.Context, c client.Reader, number int32) ([]corev1.Service, error) {
	return services(ctx, c, indexPort, number)
}

// ServersWith are the keys of the Servers with a UDP host port.
func ServersWith(ctx context.Context, c client.Reader, number int32) ([]client.ObjectKey, error) {
	var list v1alpha1.ServerList
	// Only their names are read.
	if err := c.List(ctx, &list, client.MatchingFields{indexHostPort: strconv.Itoa(int(number))}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Servers with UDP host port %d: %w", number, err)
	}
	keys := make([]client.ObjectKey, len(list.Items))
	for i := range list.Items {
		keys[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return keys, nil
}

// Clash is another user of the number of a Service's UDP port.
type Clash struct {
	// Number is the port number.
	Number int32
	// NodePortOf is the Service that has it as its UDP node port. HostPortOf is the first, by
	// name, of the Servers that have it as their UDP host port. One of them is set.
	NodePortOf, HostPortOf client.ObjectKey
}

// ClashOf finds a number of a Service's UDP ports that ends its clients' sessions;
// nil: there is none that the cache shows.
func ClashOf(ctx context.Context, c client.Reader, svc *corev1.Service) (*Clash, error) {
	for _, number := range Ports(svc) {
		others, err := services(ctx, c, indexNodePort, number, client.Limit(2))
		if err != nil {
			return nil, err
		}
		for i := range others {
			if others[i].UID != svc.UID {
				return &Clash{Number: number, NodePortOf: client.ObjectKeyFromObject(&others[i])}, nil
			}
		}
		exposed, err := ServersWith(ctx, c, number)
		if err != nil {
			return nil, err
		}
		if len(exposed) > 0 {
			// The cache has no order, and the condition must name the same Server each time.
			return &Clash{Number: number, HostPortOf: slices.MinFunc(exposed, compareKeys)}, nil
		}
	}
	return nil, nil
}

func services(ctx context.Context, c client.Reader, index string, number int32, opts ...client.ListOption) ([]corev1.Service, error) {
	var list corev1.ServiceList
	if err := c.List(ctx, &list, append(opts, client.MatchingFields{index: strconv.Itoa(int(number))})...); err != nil {
		return nil, fmt.Errorf("list the Services with UDP port %d: %w", number, err)
	}
	return list.Items, nil
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func texts(numbers []int32) []string {
	list := make([]string, len(numbers))
	for i, n := range numbers {
		list[i] = strconv.Itoa(int(n))
	}
	return list
}

// Has reports whether a Service has a UDP port.
func Has(svc *corev1.Service) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
}
