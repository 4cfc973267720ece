// Package front decides which part of a front an ElasticService gets. A front is a Service that
// many share. The part is a resolver port, the hosts that no older ElasticService has, and the
// settings of the Service's owner for its clients. It is kept in status.front of each
// ElasticService.
//
// It is a function of what was observed. Package fronts writes the Service's endpoints.
package front

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/spec"
)

// Observed is what a pass saw of the front that the spec asks for.
type Observed struct {
	// Service is the shared Service; nil when there is none.
	Service *corev1.Service
	// Elastic is the name of an ElasticService whose own Service that is.
	Elastic string
	// Rivals are older ElasticServices that have one of the hosts, by host, as far as the owner
	// of this one may know them.
	Rivals map[v1alpha1.FrontHost]string
}

// MayShare reports whether ElasticServices of a namespace may share a Service.
func MayShare(svc *corev1.Service, namespace string) bool {
	return namespace == svc.Namespace || wellknown.NamesNamespace(svc.Annotations[wellknown.AllowedNamespacesAnnotation], namespace)
}

// Plan decides which part an ElasticService gets of the front that it asks for, and returns
// what prevents all or some of it. give returns the resolver port of one of the front's ports.
func Plan(es *v1alpha1.ElasticService, front Observed, give func(port string) (int32, *obstacle.Obstacle)) (*v1alpha1.FrontStatus, *obstacle.Obstacle) {
	key, ok := index.FrontOf(es)
	if !ok {
		return nil, nil
	}
	if ob := checkFront(es, key, front); ob != nil {
		return nil, ob
	}
	port, ob := frontPort(es.Spec.Front, front.Service)
	if ob != nil {
		return nil, ob
	}
	target, ob := frontTarget(es)
	if ob != nil {
		return nil, ob
	}
	status := &v1alpha1.FrontStatus{Service: key.Name, Namespace: key.Namespace, Port: port, TargetPort: target}
	var taken []string
	for _, host := range es.Spec.Front.Hosts {
		if rival := front.Rivals[host]; rival != "" {
			taken = append(taken, fmt.Sprintf("%s is that of %s", host, rival))
		} else {
			status.Hosts = append(status.Hosts, host)
		}
	}
	if len(taken) > 0 {
		ob = obstacle.New(reasons.DuplicateHost,
			"Of the names in spec.front.hosts %s, which is older: choose others, or remove them there.", strings.Join(taken, ", and "))
	}
	if len(status.Hosts) == 0 {
		return nil, ob
	}
	number, none := give(port)
	if none != nil {
		return nil, none
	}
	status.ResolverPort = number
	invalid := setFront(status, es.Status.Front, front.Service)
	if invalid != nil && !isFront(es.Status.Front, key) {
		// The settings that the other members have aren't known here.
		return nil, invalid
	}
	if ob == nil {
		ob = invalid
	}
	return status, ob
}

// checkFront finds problems of the shared Service.
func checkFront(es *v1alpha1.ElasticService, key types.NamespacedName, front Observed) *obstacle.Obstacle {
	svc := front.Service
	switch {
	case key.Namespace != es.Namespace && (svc == nil || !MayShare(svc, es.Namespace)):
		// An owner who may not share it must not learn whether it exists.
		return obstacle.New(reasons.NamespaceNotAllowed,
			"Service %s isn't there or doesn't allow namespace %s: let its owner name the namespace in its annotation %s, or correct spec.front.",
			key, es.Namespace, wellknown.AllowedNamespacesAnnotation)
	case svc == nil:
		return obstacle.New(reasons.ServiceNotFound,
			"There is no Service %s in namespace %s: create it, without a selector, or correct spec.front.", key.Name, key.Namespace)
	case svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return obstacle.New(reasons.ServiceUnsupported,
			"Service %s is headless or of type ExternalName and has no endpoints to share: use one of type ClusterIP, NodePort or LoadBalancer in spec.front.", key.Name)
	case len(svc.Spec.Selector) > 0:
		return obstacle.New(reasons.HasSelector,
			"Service %s has a selector, by which Kubernetes sends clients past the resolver: remove its selector, or name another Service in spec.front.", key.Name)
	case front.Elastic != "":
		return obstacle.New(reasons.ServiceTaken,
			"Service %s is the own Service of ElasticService %s: name a Service in spec.front that no ElasticService has in spec.service.", key.Name, front.Elastic)
	}
	return nil
}

// frontPort is the name of the shared Service's port.
func frontPort(f *v1alpha1.Front, svc *corev1.Service) (string, *obstacle.Obstacle) {
	unknown := func(format string, args ...any) (string, *obstacle.Obstacle) {
		return "", obstacle.New(reasons.PortUnknown, format, args...)
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == f.Port })
	switch {
	case f.Port == "" && len(svc.Spec.Ports) == 1:
		i = 0
	case i < 0 && f.Port == "":
		return unknown("Service %s has %d ports: say in spec.front.port which of them is meant.", svc.Name, len(svc.Spec.Ports))
	case i < 0:
		return unknown("spec.front.port is %q, but Service %s has no port of that name: correct the name.", f.Port, svc.Name)
	}
	if p := svc.Spec.Ports[i]; spec.DefaultProtocol(p) != v1alpha1.ProtocolTCP {
		return unknown("Port %q of Service %s is %s, but clients say host names over TCP alone: name a TCP port in spec.front.port.", p.Name, svc.Name, p.Protocol)
	}
	return svc.Spec.Ports[i].Name, nil
}

// frontTarget is the name of the ElasticService's own port that clients are led to.
func frontTarget(es *v1alpha1.ElasticService) (string, *obstacle.Obstacle) {
	var naming []string
	for _, p := range es.Status.Ports {
		switch {
		case p.Protocol.NamesHosts():
			naming = append(naming, p.Name)
		case p.Name == es.Spec.Front.TargetPort && p.Name != "":
			return "", obstacle.New(reasons.ProtocolUnsupported,
				"Port %q has the protocol %s, whose clients don't say which host they want: give it the protocol minecraft, tls or http in spec.ports.", p.Name, p.Protocol)
		}
	}
	switch want := es.Spec.Front.TargetPort; {
	case want != "" && !slices.Contains(naming, want):
		return "", obstacle.New(reasons.PortUnknown,
			"spec.front.targetPort is %q, but Service %s has no port of that name: correct the name.", want, es.Spec.Service)
	case want != "":
		return want, nil
	case len(naming) == 0:
		return "", obstacle.New(reasons.ProtocolUnsupported,
			"%s", "No port has the protocol minecraft, tls or http, whose clients say which host they want: give one of them that protocol in spec.ports.")
	case len(naming) > 1:
		return "", obstacle.New(reasons.PortUnknown,
			"The ports %s all have protocols that say host names: say in spec.front.targetPort which of them is meant.", strings.Join(naming, ", "))
	}
	return naming[0], nil
}

// Same reports whether two specs ask for the same of the same front.
func Same(a, b *v1alpha1.Front) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Service == b.Service && a.Namespace == b.Namespace && a.Port == b.Port && a.TargetPort == b.TargetPort && slices.Equal(a.Hosts, b.Hosts)
}
