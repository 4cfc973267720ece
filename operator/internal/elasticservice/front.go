package elasticservice

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// observedFront is what a pass saw of the front that the spec asks for.
type observedFront struct {
	// service is the shared Service; nil when there is none.
	service *corev1.Service
	// elastic is the name of an ElasticService whose own Service that is.
	elastic string
	// rivals are older ElasticServices that have one of the hosts, by host, as the
	// owner of this one may know them.
	rivals map[v1alpha1.FrontHost]string
	// obstacle is why not all hosts lead here; nil when they do.
	obstacle *obstacle
}

// frontOf is the Service that an ElasticService wants to share.
func frontOf(es *v1alpha1.ElasticService) (types.NamespacedName, bool) {
	f := es.Spec.Front
	if f == nil {
		return types.NamespacedName{}, false
	}
	key := types.NamespacedName{Namespace: f.Namespace, Name: f.Service}
	if key.Namespace == "" {
		key.Namespace = es.Namespace
	}
	return key, true
}

// mayShare says whether ElasticServices of a namespace may share a Service.
func mayShare(svc *corev1.Service, namespace string) bool {
	if namespace == svc.Namespace {
		return true
	}
	for name := range strings.SplitSeq(svc.Annotations[v1alpha1.AllowedNamespacesAnnotation], ",") {
		if name = strings.TrimSpace(name); name == namespace || name == "*" {
			return true
		}
	}
	return false
}

// planFront decides what an ElasticService gets of the front that it asks for, and
// says what stands in the way of all or some of it. give gives the resolver port of
// one of the front's ports.
func planFront(es *v1alpha1.ElasticService, front observedFront, give func(port string) (int32, *obstacle)) (*v1alpha1.FrontStatus, *obstacle) {
	key, ok := frontOf(es)
	if !ok {
		return nil, nil
	}
	if ob := checkFront(es, key, front); ob != nil {
		return nil, ob
	}
	port, ob := frontPort(es.Spec.Front, front.service)
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
		if rival := front.rivals[host]; rival != "" {
			taken = append(taken, fmt.Sprintf("%s is that of %s", host, rival))
		} else {
			status.Hosts = append(status.Hosts, host)
		}
	}
	if len(taken) > 0 {
		ob = &obstacle{v1alpha1.ReasonDuplicateHost, fmt.Sprintf(
			"Of the names in spec.front.hosts %s, which is older: choose others, or remove them there.", strings.Join(taken, ", and "))}
	}
	if len(status.Hosts) == 0 {
		return nil, ob
	}
	number, none := give(port)
	if none != nil {
		return nil, none
	}
	status.ResolverPort = number
	invalid := setFront(status, es.Status.Front, front.service)
	if invalid != nil && !isFront(es.Status.Front, key) {
		// What the others go by isn't known here.
		return nil, invalid
	}
	if ob == nil {
		ob = invalid
	}
	return status, ob
}

// checkFront finds what is wrong with the shared Service.
func checkFront(es *v1alpha1.ElasticService, key types.NamespacedName, front observedFront) *obstacle {
	svc := front.service
	switch {
	case key.Namespace != es.Namespace && (svc == nil || !mayShare(svc, es.Namespace)):
		// Who may not share it isn't told either whether it is there.
		return &obstacle{v1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf(
			"Service %s isn't there or doesn't allow namespace %s: let its owner name the namespace in its annotation %s, or correct spec.front.",
			key, es.Namespace, v1alpha1.AllowedNamespacesAnnotation)}
	case svc == nil:
		return &obstacle{v1alpha1.ReasonServiceNotFound, fmt.Sprintf(
			"There is no Service %s in namespace %s: create it, without a selector, or correct spec.front.", key.Name, key.Namespace)}
	case svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone:
		return &obstacle{v1alpha1.ReasonServiceUnsupported, fmt.Sprintf(
			"Service %s is headless or of type ExternalName and has no endpoints to share: use one of type ClusterIP, NodePort or LoadBalancer in spec.front.", key.Name)}
	case len(svc.Spec.Selector) > 0:
		return &obstacle{v1alpha1.ReasonHasSelector, fmt.Sprintf(
			"Service %s has a selector, by which Kubernetes sends clients past the resolver: remove its selector, or name another Service in spec.front.", key.Name)}
	case front.elastic != "":
		return &obstacle{v1alpha1.ReasonServiceTaken, fmt.Sprintf(
			"Service %s is the own Service of ElasticService %s: name a Service in spec.front that no ElasticService has in spec.service.", key.Name, front.elastic)}
	}
	return nil
}

// frontPort is the name of the shared Service's port.
func frontPort(f *v1alpha1.Front, svc *corev1.Service) (string, *obstacle) {
	unknown := func(format string, args ...any) (string, *obstacle) {
		return "", &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(format, args...)}
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
	if p := svc.Spec.Ports[i]; defaultProtocol(p.Protocol) != v1alpha1.ProtocolTCP || p.Protocol == corev1.ProtocolSCTP {
		return unknown("Port %q of Service %s is %s, but clients say host names over TCP alone: name a TCP port in spec.front.port.", p.Name, svc.Name, p.Protocol)
	}
	return svc.Spec.Ports[i].Name, nil
}

// frontTarget is the name of the ElasticService's own port that clients are led to.
func frontTarget(es *v1alpha1.ElasticService) (string, *obstacle) {
	var naming []string
	for _, p := range es.Status.Ports {
		switch {
		case p.Protocol.NamesHosts():
			naming = append(naming, p.Name)
		case p.Name == es.Spec.Front.TargetPort && p.Name != "":
			return "", &obstacle{v1alpha1.ReasonProtocolUnsupported, fmt.Sprintf(
				"Port %q has the protocol %s, whose clients don't say which host they want: give it the protocol minecraft, tls or http in spec.ports.", p.Name, p.Protocol)}
		}
	}
	switch want := es.Spec.Front.TargetPort; {
	case want != "" && !slices.Contains(naming, want):
		return "", &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(
			"spec.front.targetPort is %q, but Service %s has no port of that name: correct the name.", want, es.Spec.Service)}
	case want != "":
		return want, nil
	case len(naming) == 0:
		return "", &obstacle{
			v1alpha1.ReasonProtocolUnsupported,
			"No port has the protocol minecraft, tls or http, whose clients say which host they want: give one of them that protocol in spec.ports.",
		}
	case len(naming) > 1:
		return "", &obstacle{v1alpha1.ReasonPortUnknown, fmt.Sprintf(
			"The ports %s all have protocols that say host names: say in spec.front.targetPort which of them is meant.", strings.Join(naming, ", "))}
	}
	return naming[0], nil
}
