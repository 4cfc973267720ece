// Package endpoints has what Dormouse writes beside a Service so that its clients reach
// resolvers or servers: the EndpointSlices and the private Service. It derives resolvers and
// servers from what was observed, decides each resolver's role, builds the slices, and writes
// those that differ.
//
// All but writer.go and echoes.go are functions of what was observed. The package knows neither phases nor
// when a service sleeps: the caller decides whether resolvers stand in. It must not touch
// slices that aren't labelled as managed by Dormouse, nor the user's Service.
package endpoints

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Wanted is what a Service's slices are built from.
type Wanted struct {
	Service *corev1.Service
	// Resolvers have roles, by the UIDs of their pods. Those in Stay may stay ready in a family
	// that lags.
	Resolvers []Resolver
	Roles     map[string]Role
	Stay      map[string]bool
	// Sources are the private Service's slices as Kubernetes writes them, and Pods is what else
	// is known of the pods in them.
	Sources []discoveryv1.EndpointSlice
	Pods    Pods
	// Slices are those that Dormouse wrote, and Leftovers are other slices of the Service.
	Slices, Leftovers []discoveryv1.EndpointSlice
	// Accepting is set where servers get new clients.
	Accepting bool
}

// Slices are the EndpointSlices that Dormouse adds to the Service: the resolvers', one for each
// address family, and, for a Service without a selector, those of the servers. A slice without
// endpoints is left out.
//
// They are in the order in which they are to be written. kube-proxy applies them one by one, and
// while no endpoint is ready it sends new clients to terminating ones, among them servers that
// drain. So slices that become ready come before slices that stop being ready.
func Slices(es *v1alpha1.ElasticService, w Wanted) []*discoveryv1.EndpointSlice {
	var ready, others []*discoveryv1.EndpointSlice
	add := func(s *discoveryv1.EndpointSlice) {
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready }) {
			ready = append(ready, s)
		} else {
			others = append(others, s)
		}
	}
	for _, f := range w.Service.Spec.IPFamilies {
		family, roles := discoveryv1.AddressType(f), w.Roles
		if len(w.Stay) > 0 {
			roles = rolesIn(family, w)
		}
		if list := ResolverEndpoints(w.Resolvers, roles, family); len(list) > 0 {
			add(&discoveryv1.EndpointSlice{
				ObjectMeta:  sliceMeta(es, es.Spec.Service+"-resolver-"+strings.ToLower(string(family))),
				AddressType: family, Ports: ResolverPorts(w.Service, es.Status.Ports), Endpoints: list,
			})
		}
	}
	if len(w.Service.Spec.Selector) == 0 {
		had := addressesIn(slices.Concat(w.Slices, w.Leftovers))
		for i := range w.Sources {
			if s := serverSlice(es, &w.Sources[i], w.Pods, had, w.Accepting); len(s.Endpoints) > 0 {
				add(s)
			}
		}
	}
	return append(ready, others...)
}

// sliceMeta is the metadata of a slice of an ElasticService.
func sliceMeta(es *v1alpha1.ElasticService, name string) metav1.ObjectMeta {
	m := childMeta(es, name)
	m.Labels[discoveryv1.LabelServiceName], m.Labels[discoveryv1.LabelManagedBy] = es.Spec.Service, wellknown.ManagedBy
	return m
}

// ResolverPorts are the ports of a slice of resolvers.
func ResolverPorts(svc *corev1.Service, ports []v1alpha1.PortStatus) []discoveryv1.EndpointPort {
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

// ResolverEndpoints are the resolvers that have a role, by their addresses.
func ResolverEndpoints(resolvers []Resolver, roles map[string]Role, family discoveryv1.AddressType) []discoveryv1.Endpoint {
	var list []discoveryv1.Endpoint
	for _, r := range resolvers {
		role := roles[r.UID]
		address := AddressOf(r.Addresses, family)
		if role == RoleNone || address == "" {
			continue
		}
		e := discoveryv1.Endpoint{
			Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{
				Ready:       new(role == RoleReady),
				Serving:     new(true),
				Terminating: new(role == RoleTerminating),
			},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: r.Namespace, Name: r.PodName, UID: types.UID(r.UID)},
		}
		if r.Node != "" {
			e.NodeName = new(r.Node)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
	return list
}

// serverSlice follows one of the private Service's slices. A server gets new clients while it
// is up. It keeps those that it has, over UDP too, until its pod is gone, so serving stays
// true. Unless servers are accepting, new clients go to the resolver alone. A server that never
// had clients, by the addresses in had, is left out.
func serverSlice(es *v1alpha1.ElasticService, source *discoveryv1.EndpointSlice, pods Pods, had map[string]bool, accepting bool) *discoveryv1.EndpointSlice {
	suffix := source.Name[strings.LastIndexByte(source.Name, '-')+1:]
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: sliceMeta(es, serverSliceName(es.Spec.Service, suffix)), AddressType: source.AddressType, Ports: source.Ports,
	}
	for _, e := range source.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		up := ptr.Deref(e.Conditions.Serving, true) && !ptr.Deref(e.Conditions.Terminating, false)
		ready := up && accepting && !pods.takeNobody(&e)
		if !ready && !had[e.Addresses[0]] {
			continue
		}
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(ready), Serving: new(true), Terminating: new(!ready)}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func serverSliceName(service, suffix string) string { return service + "-servers-" + suffix }

// FamilyLag bounds how long a family may lag after a wake.
const FamilyLag = 30 * time.Second

// rolesIn are the resolvers' roles in a family where some may stay. Kubernetes writes a slice for
// each family, one after the other. When the first one has a server that is up again, the other may still have
// only earlier servers, which are gone. Until it has a new one, resolvers that are ready there
// stay ready, or kube-proxy would send new clients to servers that are gone.
func rolesIn(family discoveryv1.AddressType, w Wanted) map[string]Role {
	if !Lags(family, w.Sources, w.Pods) {
		return w.Roles
	}
	roles := maps.Clone(w.Roles)
	for _, s := range w.Slices {
		for _, e := range s.Endpoints {
			if s.AddressType == family && e.TargetRef != nil && w.Stay[string(e.TargetRef.UID)] && ptr.Deref(e.Conditions.Ready, true) {
				roles[string(e.TargetRef.UID)] = RoleReady
			}
		}
	}
	return roles
}

// Lags reports whether a family has servers, and none that takes new clients.
func Lags(family discoveryv1.AddressType, sources []discoveryv1.EndpointSlice, pods Pods) bool {
	var ofFamily []discoveryv1.EndpointSlice
	for _, s := range sources {
		if s.AddressType == family {
			ofFamily = append(ofFamily, s)
		}
	}
	servers, up := ServersOf(ofFamily, pods)
	return len(servers) > 0 && up == 0
}

func addressesIn(slices []discoveryv1.EndpointSlice) map[string]bool {
	pods := map[string]bool{}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				pods[a] = true
			}
		}
	}
	return pods
}

// AddressOf picks a pod's address of a family.
func AddressOf(addresses []string, family discoveryv1.AddressType) string {
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() == (family == discoveryv1.AddressTypeIPv4) {
			return a
		}
	}
	return ""
}

// sameSlice reports whether a slice has the endpoints and ports that are wanted.
func sameSlice(have, want *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		have.Labels[discoveryv1.LabelServiceName] == want.Labels[discoveryv1.LabelServiceName]
}

// OfServers reports whether a slice is one of servers and not of resolvers.
func OfServers(s *discoveryv1.EndpointSlice) bool {
	return strings.HasPrefix(s.Name, serverSliceName(s.Labels[discoveryv1.LabelServiceName], ""))
}
