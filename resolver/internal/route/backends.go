package route

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Backends finds a port's addresses in the private Service's slices. The port's number is
// looked up in each slice by the port's name, because it may differ between pods. An address in
// several slices counts once, in its best state.
func Backends(all []*discoveryv1.EndpointSlice, port string, network Network, o overrides) []Backend {
	found := map[netip.AddrPort]Backend{}
	for _, slice := range all {
		number, ok := portNumber(slice, port, network)
		if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			serving, terminating := conditionsOf(endpoint)
			serving = serving || o.up(slice.Namespace, endpoint)
			terminating = terminating || o.closed(slice.Namespace, endpoint)
			for _, text := range endpoint.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				at := netip.AddrPortFrom(address.Unmap(), number)
				b := Backend{
					Address: at, Pod: pod(endpoint), Serving: serving, Terminating: terminating,
					Unasked: !serving && !terminating && o.unasked(slice.Namespace, endpoint),
				}
				if was, ok := found[at]; !ok || better(b, was) {
					found[at] = b
				}
			}
		}
	}
	out := make([]Backend, 0, len(found))
	for _, b := range found {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b Backend) int {
		return cmp.Or(a.Address.Addr().Compare(b.Address.Addr()), cmp.Compare(a.Address.Port(), b.Address.Port()))
	})
	return out
}

// closeAll has no backend get new clients, as if all of them terminated: what the service needs isn't
// up. Clients that are there stay.
func closeAll(all []Backend) {
	for i := range all {
		all[i].Terminating, all[i].Unasked = true, false
	}
}

// overrides are what counts of pods whatever their endpoints' conditions are.
type overrides struct {
	// early are the games that take players though kubelet hasn't found that out.
	early map[types.NamespacedName]early
	now   time.Time
	// silent are the pods whose games may listen though nobody says so, of a service that isn't
	// awake.
	silent map[types.NamespacedName]types.UID
	// draining are the Servers that drain, whose pods have their names.
	draining map[types.NamespacedName]bool
	// beforeSleep are the pods that may be ended by a sleep that is over.
	beforeSleep map[types.UID]bool
}

// closed reports whether a pod gets no new clients, and counts as terminating.
func (o *overrides) closed(namespace string, e *discoveryv1.Endpoint) bool {
	pod := e.TargetRef
	return pod != nil && (o.draining[types.NamespacedName{Namespace: namespace, Name: pod.Name}] || o.beforeSleep[pod.UID])
}

// up reports whether a pod's game takes players by its own word.
func (o *overrides) up(namespace string, e *discoveryv1.Endpoint) bool {
	if e.TargetRef == nil {
		return false
	}
	is := o.early[types.NamespacedName{Namespace: namespace, Name: e.TargetRef.Name}]
	return is.pod == e.TargetRef.UID && o.now.Before(is.until)
}

// unasked reports whether only a connection shows if a pod's game listens.
func (o *overrides) unasked(namespace string, e *discoveryv1.Endpoint) bool {
	pod := e.TargetRef
	return pod != nil && pod.UID != "" && o.silent[types.NamespacedName{Namespace: namespace, Name: pod.Name}] == pod.UID
}

// portNumber is the resolved target port.
func portNumber(slice *discoveryv1.EndpointSlice, name string, network Network) (uint16, bool) {
	want := corev1.ProtocolTCP
	if network == UDP {
		want = corev1.ProtocolUDP
	}
	for _, p := range slice.Ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		var has string
		if p.Name != nil {
			has = *p.Name
		}
		if has != name || protocol != want || p.Port == nil || *p.Port < 1 || *p.Port > 65535 {
			continue
		}
		return uint16(*p.Port), true
	}
	return 0, false
}

func pod(e *discoveryv1.Endpoint) types.UID {
	if e.TargetRef == nil {
		return ""
	}
	return e.TargetRef.UID
}

// conditionsOf reads an endpoint's conditions. By the API an absent serving is the same as ready.
func conditionsOf(e *discoveryv1.Endpoint) (serving, terminating bool) {
	serving = true
	switch {
	case e.Conditions.Serving != nil:
		serving = *e.Conditions.Serving
	case e.Conditions.Ready != nil:
		serving = *e.Conditions.Ready
	}
	terminating = e.Conditions.Terminating != nil && *e.Conditions.Terminating
	return serving, terminating
}

func better(a, b Backend) bool {
	if a.Terminating != b.Terminating {
		return !a.Terminating
	}
	return a.Serving && !b.Serving
}
