package route

import (
	"net/netip"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/wellknown"
)

// Own follows the slices that send clients to this resolver: those that Dormouse wrote and that
// list the resolver's address as ready. It keeps only their names.
type Own struct {
	addresses []netip.Addr

	mu    sync.Mutex
	ready map[types.NamespacedName]struct{}
}

// NewOwn makes an Own of a pod's addresses, one for each family.
func NewOwn(addresses []netip.Addr) *Own {
	o := &Own{ready: map[types.NamespacedName]struct{}{}}
	for _, a := range addresses {
		o.addresses = append(o.addresses, a.Unmap())
	}
	return o
}

// SetSlice takes any new or changed slice.
func (o *Own) SetSlice(slice *discoveryv1.EndpointSlice) {
	listed := slice.Labels[discoveryv1.LabelManagedBy] == wellknown.ManagedBy &&
		slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
			return isReady(&e) && slices.ContainsFunc(e.Addresses, o.has)
		})
	o.mu.Lock()
	defer o.mu.Unlock()
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	if listed {
		o.ready[name] = struct{}{}
		return
	}
	delete(o.ready, name)
}

// DeleteSlice forgets a slice.
func (o *Own) DeleteSlice(slice *discoveryv1.EndpointSlice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ready, types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name})
}

// Listed is how many slices list this resolver as ready.
func (o *Own) Listed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ready)
}

func (o *Own) has(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && slices.Contains(o.addresses, address.Unmap())
}

// isReady reports whether an endpoint is ready. By the API an absent condition is true.
func isReady(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }
