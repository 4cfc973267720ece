// Package callers tells callers apart by the addresses that they come from.
package callers

import "net/netip"

// Of is what counts as one caller: an address, or of IPv6 its /64, which is what one host gets. It is
// the zero Prefix for the zero Addr.
func Of(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	prefix, _ := a.Prefix(bits) // each address has so many bits
	return prefix
}
