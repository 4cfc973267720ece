// Package plan has the names, addresses and ranges of a cluster. It is arithmetic, and looks
// at no machine.
package plan

import (
	"fmt"
	"net/netip"
	"strings"
)

// Plan is the shape of a cluster. Every name, address and range follows from
// it, so two programs that know the Plan agree without asking one another.
// Nodes are numbered from 1.
type Plan struct {
	Nodes int  `json:"nodes"`
	IPv6  bool `json:"ipv6"`
}

// The ranges of the cluster. The IPv6 ones are from one unique local prefix
// (RFC 4193).
var (
	nodeRange4    = netip.MustParsePrefix("10.250.0.0/24")
	podRange4     = netip.MustParsePrefix("10.244.0.0/16")
	serviceRange4 = netip.MustParsePrefix("10.96.0.0/16")
	nodeRange6    = netip.MustParsePrefix("fd4d:6f75:7365:250::/64")
	podRange6     = netip.MustParsePrefix("fd4d:6f75:7365:f400::/56")
	serviceRange6 = netip.MustParsePrefix("fd4d:6f75:7365:96::/112")
)

// MaxNodes is how many nodes the ranges have room for.
const MaxNodes = 50

// The last bytes of addresses in the nodes' range.
const (
	hostNumber   = 1
	firstNode    = 10
	playerNumber = 100
)

const (
	// HostLink is the host's interface in the nodes' range.
	HostLink = "dormouse0"
	// SwitchNamespace is the network namespace of the bridge.
	SwitchNamespace = "dormouse-switch"
	// PlayerNamespace is that of the players.
	PlayerNamespace = "dormouse-player"

	// APIServerPort is where the API server listens on the host.
	APIServerPort = 6443
	// EtcdPort is where etcd does.
	EtcdPort = 2379
	// ClusterDomain is the end of all names in the cluster's DNS.
	ClusterDomain = "cluster.local"
)

// Validate refuses what the address ranges have no room for.
func (p Plan) Validate() error {
	if p.Nodes < 2 || p.Nodes > MaxNodes {
		return fmt.Errorf("plan a cluster of %d nodes: want 2 to %d", p.Nodes, MaxNodes)
	}
	return nil
}

// NodeName is the name of a node's Node object.
func (p Plan) NodeName(node int) string { return fmt.Sprintf("node-%d", node) }

// NodeNamespace is the network namespace of a node.
func (p Plan) NodeNamespace(node int) string { return "dormouse-" + p.NodeName(node) }

// HostAddrs are the addresses of the machine itself in the cluster's network,
// where the API server listens, IPv4 first.
func (p Plan) HostAddrs() []netip.Addr { return p.addrs(hostNumber) }

// NodeAddrs are a node's internal addresses, IPv4 first.
func (p Plan) NodeAddrs(node int) []netip.Addr { return p.addrs(firstNode + node) }

// PlayerAddrs are the addresses that players come from, IPv4 first.
func (p Plan) PlayerAddrs() []netip.Addr { return p.addrs(playerNumber) }

func (p Plan) addrs(number int) []netip.Addr {
	return p.families(nth(nodeRange4.Addr(), number), nth(nodeRange6.Addr(), number))
}

// PodRanges are the ranges of a node's pods, IPv4 first: /24 and /64.
func (p Plan) PodRanges(node int) []netip.Prefix {
	v4 := podRange4.Addr().As4()
	v4[2] = byte(node) //nolint:gosec // at most maxNodes
	v6 := podRange6.Addr().As16()
	v6[7] = byte(node) //nolint:gosec // at most maxNodes
	return dualPrefixes(p, netip.PrefixFrom(netip.AddrFrom4(v4), 24), netip.PrefixFrom(netip.AddrFrom16(v6), 64))
}

// ServiceRanges are the ranges of ClusterIPs, IPv4 first.
func (p Plan) ServiceRanges() []netip.Prefix { return dualPrefixes(p, serviceRange4, serviceRange6) }

// ClusterRanges are the ranges of all pods, IPv4 first.
func (p Plan) ClusterRanges() []netip.Prefix { return dualPrefixes(p, podRange4, podRange6) }

// NodeRanges are the ranges of the nodes, the host and the players, IPv4 first.
func (p Plan) NodeRanges() []netip.Prefix { return dualPrefixes(p, nodeRange4, nodeRange6) }

// KubernetesAddrs are the ClusterIPs that the API server's own Service may get.
func (p Plan) KubernetesAddrs() []netip.Addr {
	return p.families(nth(serviceRange4.Addr(), 1), nth(serviceRange6.Addr(), 1))
}

// DNSAddrs are the ClusterIPs of the cluster's DNS, IPv4 first.
func (p Plan) DNSAddrs() []netip.Addr {
	return p.families(nth(serviceRange4.Addr(), 10), nth(serviceRange6.Addr(), 10))
}

// APIServerURL is where the API server is reached, from the host and from any
// namespace of the cluster.
func (p Plan) APIServerURL() string {
	return fmt.Sprintf("https://%s", netip.AddrPortFrom(p.HostAddrs()[0], APIServerPort))
}

// EtcdURL is where the API server reaches etcd.
func (p Plan) EtcdURL() string {
	return fmt.Sprintf("https://%s", netip.AddrPortFrom(p.HostAddrs()[0], EtcdPort))
}

func (p Plan) families(v4, v6 netip.Addr) []netip.Addr {
	if p.IPv6 {
		return []netip.Addr{v4, v6}
	}
	return []netip.Addr{v4}
}

func dualPrefixes(p Plan, v4, v6 netip.Prefix) []netip.Prefix {
	if p.IPv6 {
		return []netip.Prefix{v4, v6}
	}
	return []netip.Prefix{v4}
}

// nth is the address that is n after base; n fits the last byte.
func nth(base netip.Addr, n int) netip.Addr {
	raw := base.AsSlice()
	raw[len(raw)-1] += byte(n) //nolint:gosec // every number of a plan is below 256
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

// List joins addresses or prefixes the way Kubernetes' flags want them.
func List[T fmt.Stringer](items []T) string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = item.String()
	}
	return strings.Join(words, ",")
}

// Overlapping names an address of the machine that lies in a range of the
// cluster, if there is one.
func (p Plan) Overlapping(addrs []netip.Prefix) (netip.Prefix, bool) {
	for _, ranges := range [][]netip.Prefix{p.NodeRanges(), p.ClusterRanges(), p.ServiceRanges()} {
		for _, own := range ranges {
			for _, addr := range addrs {
				if own.Overlaps(addr.Masked()) {
					return addr, true
				}
			}
		}
	}
	return netip.Prefix{}, false
}
