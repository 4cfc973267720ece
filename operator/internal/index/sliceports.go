package index

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
)

// portsPerKey is how many neighboring ports have one key in the index SlicePort: a key that only one slice
// has takes some 300 bytes, and each service has a port of its own.
const portsPerKey = 16

func slicePortKey(port int32) string { return strconv.Itoa(int(port) / portsPerKey) }

// slicePortKeys are the keys of the ports in one of Dormouse's slices.
func slicePortKeys(o client.Object) []string {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != wellknown.ManagedBy {
		return nil
	}
	var keys []string
	for _, p := range slice.Ports {
		if p.Port != nil && !slices.Contains(keys, slicePortKey(*p.Port)) {
			keys = append(keys, slicePortKey(*p.Port))
		}
	}
	return keys
}

// PortInSlice reports whether a port is in one of Dormouse's slices.
func PortInSlice(ctx context.Context, cached client.Reader, port int32) (bool, error) {
	var list discoveryv1.EndpointSliceList
	// They are only read.
	if err := cached.List(ctx, &list, client.MatchingFields{SlicePort: slicePortKey(port)}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the EndpointSlices with port %d: %w", port, err)
	}
	return slices.ContainsFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port != nil && *p.Port == port })
	}), nil
}
