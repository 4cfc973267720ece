package elasticservice

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// privateServiceName is the name of the headless Service beside a user's, within
// the 63 characters that a Service's name may have.
func privateServiceName(service string) string {
	const suffix = "-dormouse"
	if len(service)+len(suffix) <= 63 {
		return service + suffix
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(service))
	return fmt.Sprintf("%s-%08x%s", service[:63-len(suffix)-9], h.Sum32(), suffix)
}

func ownerReference(es *v1alpha1.ElasticService) metav1.OwnerReference {
	return *metav1.NewControllerRef(es, v1alpha1.GroupVersion.WithKind("ElasticService"))
}

func childLabels(es *v1alpha1.ElasticService) map[string]string {
	return map[string]string{
		v1alpha1.PrivateServiceLabel:   es.Spec.Service,
		"app.kubernetes.io/managed-by": "dormouse",
	}
}

// podSelector is what finds the target's pods: the Service's selector, or else
// the one in the target's scale, as far as a Service can express it.
func podSelector(svc *corev1.Service, scaleSelector string) (map[string]string, *obstacle) {
	if len(svc.Spec.Selector) > 0 {
		return svc.Spec.Selector, nil
	}
	set, err := labels.ConvertSelectorToLabelsMap(scaleSelector)
	if err != nil || len(set) == 0 {
		return nil, &obstacle{v1alpha1.ReasonNoTargetSelector, fmt.Sprintf(
			"Service %s has no selector, and the target's scale has none of the form key=value either (it says %q), so its pods can't be found: give the Service a selector.",
			svc.Name, scaleSelector)}
	}
	return set, nil
}

// desiredPrivateService is the headless Service by which Kubernetes tells us the
// addresses of the target's pods as soon as they have one. It has the ports of
// the user's Service and nothing that would open it to the outside.
func desiredPrivateService(es *v1alpha1.ElasticService, svc *corev1.Service, selector map[string]string) *corev1.Service {
	private := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:            privateServiceName(svc.Name),
			Namespace:       es.Namespace,
			Labels:          childLabels(es),
			OwnerReferences: []metav1.OwnerReference{ownerReference(es)},
		},
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 selector,
			PublishNotReadyAddresses: true,
			IPFamilies:               svc.Spec.IPFamilies,
			IPFamilyPolicy:           svc.Spec.IPFamilyPolicy,
		},
	}
	for _, p := range svc.Spec.Ports {
		private.Spec.Ports = append(private.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, Port: p.Port, TargetPort: p.TargetPort, AppProtocol: p.AppProtocol,
		})
	}
	return private
}

// desiredSlices are the EndpointSlices that Dormouse adds to the Service: the
// resolvers', one for each address family, and, for a Service without a selector,
// those of the servers. A slice without endpoints is not wanted.
func desiredSlices(es *v1alpha1.ElasticService, o observed, p plan) []*discoveryv1.EndpointSlice {
	var wanted []*discoveryv1.EndpointSlice
	for _, family := range o.service.Spec.IPFamilies {
		if s := resolverSlice(es, o, rolesIn(discoveryv1.AddressType(family), o, p), discoveryv1.AddressType(family)); len(s.Endpoints) > 0 {
			wanted = append(wanted, s)
		}
	}
	if len(o.service.Spec.Selector) == 0 {
		known := addressesIn(slices.Concat(o.slices, o.leftovers.slices))
		accepting := p.phase == v1alpha1.PhaseAwake && handoff(es) == v1alpha1.HandoffDirect
		for i := range o.sources {
			if s := serverSlice(es, &o.sources[i], &o, known, accepting); len(s.Endpoints) > 0 {
				wanted = append(wanted, s)
			}
		}
	}
	return readyFirst(wanted)
}

// readyFirst puts slices in the order in which they are to be written. kube-proxy
// takes them in one by one, and while no endpoint is ready it sends new clients to
// terminating ones, among them servers that drain: so what is ready from now on
// comes before what isn't any more.
func readyFirst(all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var ready, others []*discoveryv1.EndpointSlice
	for _, s := range all {
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready }) {
			ready = append(ready, s)
		} else {
			others = append(others, s)
		}
	}
	return append(ready, others...)
}

func newSlice(es *v1alpha1.ElasticService, name string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	l := childLabels(es)
	l[discoveryv1.LabelServiceName] = es.Spec.Service
	l[discoveryv1.LabelManagedBy] = v1alpha1.ManagedBy
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: es.Namespace, Labels: l,
			OwnerReferences: []metav1.OwnerReference{ownerReference(es)},
		},
		AddressType: family,
	}
}

func resolverSlice(es *v1alpha1.ElasticService, o observed, roles map[string]role, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	s := newSlice(es, es.Spec.Service+"-resolver-"+strings.ToLower(string(family)), family)
	s.Ports = resolverPorts(o.service, es.Status.Ports)
	s.Endpoints = resolverEndpoints(o.resolvers, roles, family)
	return s
}

// resolverPorts are the ports of a slice of resolvers.
func resolverPorts(svc *corev1.Service, ports []v1alpha1.PortStatus) []discoveryv1.EndpointPort {
	protocols := map[string]corev1.ServicePort{}
	for _, p := range svc.Spec.Ports {
		protocols[p.Name] = p
	}
	var list []discoveryv1.EndpointPort
	for _, p := range ports {
		list = append(list, discoveryv1.EndpointPort{
			Name:        new(p.Name),
			Protocol:    new(p.Protocol.Transport()),
			Port:        new(p.ResolverPort),
			AppProtocol: protocols[p.Name].AppProtocol,
		})
	}
	return list
}

// resolverEndpoints are the resolvers that have a role, by their addresses.
func resolverEndpoints(resolvers []resolver, roles map[string]role, family discoveryv1.AddressType) []discoveryv1.Endpoint {
	var list []discoveryv1.Endpoint
	for _, r := range resolvers {
		role := roles[r.uid]
		address := addressOf(r.addresses, family)
		if role == roleNone || address == "" {
			continue
		}
		e := discoveryv1.Endpoint{
			Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{
				Ready:       new(role == roleReady),
				Serving:     new(true),
				Terminating: new(role == roleTerminating),
			},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: r.namespace, Name: r.podName, UID: uid(r.uid)},
		}
		if r.node != "" {
			e.NodeName = new(r.node)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
	return list
}

// serverSlice follows one of the private Service's slices. A server gets new
// clients while it is up; it keeps those it has, over UDP too, until its pod is
// gone, which is why serving stays true. Unless servers are accepting, new clients
// go to the resolver alone. A server that never got any is left out.
func serverSlice(es *v1alpha1.ElasticService, source *discoveryv1.EndpointSlice, o *observed, known map[string]bool, accepting bool) *discoveryv1.EndpointSlice {
	suffix := source.Name[strings.LastIndexByte(source.Name, '-')+1:]
	s := newSlice(es, serverSliceName(es.Spec.Service, suffix), source.AddressType)
	s.Ports = source.Ports
	for _, e := range source.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		up := ptr.Deref(e.Conditions.Serving, true) && !ptr.Deref(e.Conditions.Terminating, false)
		ready := up && accepting && !o.takesNobody(&e)
		if !ready && !known[e.Addresses[0]] {
			continue
		}
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(ready), Serving: new(true), Terminating: new(!ready)}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func serverSliceName(service, suffix string) string { return service + "-servers-" + suffix }

// familyLag bounds for how long after a wake a family may be behind.
const familyLag = 30 * time.Second

// rolesIn are the resolvers' roles in a family. Kubernetes writes a slice for each
// family, one after the other: when the first says that a server is up again, the other
// may still have those from before alone, which are gone. As long as a family has only
// such, whoever is ready there stays so, or kube-proxy would send new clients to them.
func rolesIn(family discoveryv1.AddressType, o observed, p plan) map[string]role {
	if len(p.stay) == 0 || !behind(family, o) {
		return p.roles
	}
	var ours []discoveryv1.EndpointSlice
	for _, s := range o.slices {
		if s.AddressType == family {
			ours = append(ours, s)
		}
	}
	roles := maps.Clone(p.roles)
	for uid, was := range currentRoles(ours) {
		if was == roleReady && p.stay[uid] {
			roles[uid] = roleReady
		}
	}
	return roles
}

// behind says that a family has servers, and none that takes new clients.
func behind(family discoveryv1.AddressType, o observed) bool {
	var ofFamily []discoveryv1.EndpointSlice
	for _, s := range o.sources {
		if s.AddressType == family {
			ofFamily = append(ofFamily, s)
		}
	}
	servers := serversOf(ofFamily, &o)
	return len(servers) > 0 && countUp(servers) == 0
}

// currentRoles are the roles of resolvers, by the pod's UID, that slices give. One that
// is ready in any is ready.
func currentRoles(slices []discoveryv1.EndpointSlice) map[string]role {
	roles := map[string]role{}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			switch {
			case e.TargetRef == nil:
			case ptr.Deref(e.Conditions.Ready, true):
				roles[string(e.TargetRef.UID)] = roleReady
			case roles[string(e.TargetRef.UID)] == roleNone:
				roles[string(e.TargetRef.UID)] = roleTerminating
			}
		}
	}
	return roles
}

func addressesIn(slices []discoveryv1.EndpointSlice) map[string]bool {
	known := map[string]bool{}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				known[a] = true
			}
		}
	}
	return known
}

// addressOf picks the address of a family out of a pod's.
func addressOf(addresses []string, family discoveryv1.AddressType) string {
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() == (family == discoveryv1.AddressTypeIPv4) {
			return a
		}
	}
	return ""
}
