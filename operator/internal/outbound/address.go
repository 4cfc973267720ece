package outbound

import (
	"context"
	"net/netip"
	"slices"
	"syscall"
)

// Addresses are what an administrator and the cluster say of the addresses that are dialled.
type Addresses struct {
	// Networks are those that URLs may lead to. With none, only Services are asked.
	Networks []netip.Prefix
	// Reserved returns addresses that are never dialled, whatever else is listed: the API server's, which
	// are the ClusterIPs of the Service default/kubernetes, the addresses of its EndpointSlices
	// and the host of the operator's own configuration. The operator's own addresses belong
	// there, too: they are its loopback by another name. It is called for every
	// connection, and may be called by many at once.
	Reserved func() []netip.Addr

	// loopback allows loopback addresses.
	loopback bool
}

// WithLoopback allows loopback addresses, too: for tests, whose servers have them.
func (a Addresses) WithLoopback() Addresses {
	a.loopback = true
	return a
}

// network is one that is never dialled, and what it is.
type network struct {
	prefix netip.Prefix
	what   string
}

// nat64 is where RFC 6052 puts all of IPv4 into IPv6. What it leads to is in its last 32 bits.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// forbidden are never dialled. The metadata services are those of clouds that have them outside
// of the link-local networks.
var forbidden = []network{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved or the broadcast address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "one of IETF's protocol assignments"},
	{netip.MustParsePrefix("100.100.100.200/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a cloud's metadata service"},
	// What these lead to is another address, which they hide in ways of their own.
	{netip.MustParsePrefix("::/96"), "an IPv4 address within an IPv6 one"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "an IPv4 address within an IPv6 one"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an IPv4 address within an IPv6 one"},
	{netip.MustParsePrefix("2001::/32"), "an IPv4 address within an IPv6 one"},
	{netip.MustParsePrefix("2002::/16"), "an IPv4 address within an IPv6 one"},
}

// Check returns why an address may not be dialled, for a Service or for a URL: an *Error with
// NotAllowed. Nil: it may.
func (a Addresses) Check(addr netip.Addr, service bool) error {
	return a.check(addr, service, addr.WithZone("").Unmap().String())
}

// check is Check of an address that its errors call so.
func (a Addresses) check(addr netip.Addr, service bool, called string) error {
	addr = addr.WithZone("").Unmap()
	for _, led := range leadsTo(addr) {
		if what := a.forbidden(led); what != "" {
			return Failure(NotAllowed, "%s is %s, which is never asked", called, what)
		}
	}
	if service || contains(a.Networks, addr) {
		return nil
	}
	return Failure(NotAllowed, "%s isn't among the addresses that the administrator allows for URLs: have it added, or name a Service of the cluster", called)
}

// Early returns why a URL can't be asked, as far as that is clear before its name is resolved. addr is the
// zero Addr for a name.
func (a Addresses) Early(addr netip.Addr) error {
	switch {
	case len(a.Networks) == 0:
		return Failure(NotAllowed, "The administrator allows no URLs: name a Service of the cluster, or have the URL's address allowed")
	case addr.IsValid():
		return a.Check(addr, false)
	}
	return nil
}

// forbidden says what an address is that is never dialled, and "" of others.
func (a Addresses) forbidden(addr netip.Addr) string {
	if a.loopback && addr.IsLoopback() {
		return ""
	}
	for _, n := range forbidden {
		if n.prefix.Contains(addr) {
			return n.what
		}
	}
	if a.Reserved == nil {
		return ""
	}
	if slices.ContainsFunc(a.Reserved(), func(r netip.Addr) bool { return r.WithZone("").Unmap() == addr }) {
		return "reserved, as the API server's addresses and the operator's own are"
	}
	return ""
}

// leadsTo returns an address, and the one that a NAT64 makes of it.
func leadsTo(addr netip.Addr) []netip.Addr {
	if !nat64.Contains(addr) {
		return []netip.Addr{addr}
	}
	bytes := addr.As16()
	return []netip.Addr{addr, netip.AddrFrom4([4]byte(bytes[12:]))}
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Control is a net.Dialer's: it checks each address right before it is dialled, after names have
// been resolved.
func (a Addresses) Control(service bool) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" {
			return Failure(NotAllowed, "%s isn't dialled by %s", address, network)
		}
		// What a name leads to isn't for everybody to read.
		return a.check(addr.Addr(), service, "its address")
	}
}
