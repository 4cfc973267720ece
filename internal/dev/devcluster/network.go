package devcluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"dormouse.dev/dormouse/internal/dev/devcluster/host"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
)

// connectAll makes the bridge, the host's end of it and a namespace for each
// node and for the players.
func (c *Cluster) connectAll(ctx context.Context) error {
	if err := c.recordNamespaceMount(); err != nil {
		return err
	}
	if err := c.addNamespace(ctx, plan.SwitchNamespace); err != nil {
		return err
	}
	err := host.IPLines(ctx, plan.SwitchNamespace, []string{
		"link add name switch type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
		"link set switch up",
	})
	if err != nil {
		return err
	}
	if err := c.connectHost(ctx); err != nil {
		return err
	}
	for node := 1; node <= c.Nodes; node++ {
		if err := c.connect(ctx, c.NodeNamespace(node), c.NodeName(node), c.nodeNetwork(node)); err != nil {
			return err
		}
	}
	return c.connect(ctx, plan.PlayerNamespace, "player", c.playerNetwork())
}

// recordNamespaceMount: iproute2 makes its directory a mount when there is none
// yet, which is then the cluster's to remove.
func (c *Cluster) recordNamespaceMount() error {
	mounted, err := host.MountPoints()
	if err != nil {
		return err
	}
	if slices.Contains(mounted, host.NamespaceDir) {
		return nil
	}
	return c.ledger.Add(host.Record{Kind: host.KindMount, Name: host.NamespaceDir})
}

func (c *Cluster) addNamespace(ctx context.Context, name string) error {
	if err := c.ledger.Add(host.Record{Kind: host.KindNamespace, Name: name}); err != nil {
		return err
	}
	return host.IP(ctx, "netns", "add", name)
}

// connectHost gives the host an address on the bridge and routes to all of the
// cluster's ranges. The unreachable ones stay when the others are gone with
// their interface: a packet for the cluster never takes the default route.
func (c *Cluster) connectHost(ctx context.Context) error {
	if err := c.ledger.Add(host.Record{Kind: host.KindInterface, Name: plan.HostLink}); err != nil {
		return err
	}
	var fallbacks []string
	for _, ranges := range [][]netip.Prefix{c.NodeRanges(), c.ClusterRanges(), c.ServiceRanges()} {
		for _, r := range ranges {
			route := fmt.Sprintf("unreachable %s metric 9999", r)
			if err := c.ledger.Add(host.Record{Kind: host.KindRoute, Name: route}); err != nil {
				return err
			}
			fallbacks = append(fallbacks, "route add "+route)
		}
	}
	lines := append(fallbacks,
		fmt.Sprintf("link add name %s type veth peer name host netns %s", plan.HostLink, plan.SwitchNamespace))
	lines = append(lines, addressLines(plan.HostLink, c.HostAddrs())...)
	lines = append(lines, c.podRoutes(plan.HostLink, 0)...)
	lines = append(lines, c.serviceRoutes(plan.HostLink)...)
	if err := host.IPLines(ctx, "", lines); err != nil {
		return err
	}
	return host.IPLines(ctx, plan.SwitchNamespace, []string{"link set host master switch up"})
}

// connect makes a namespace whose eth0 is plugged into the bridge at port.
func (c *Cluster) connect(ctx context.Context, namespace, port string, lines []string) error {
	if err := c.addNamespace(ctx, namespace); err != nil {
		return err
	}
	err := host.IPLines(ctx, plan.SwitchNamespace, []string{
		fmt.Sprintf("link add name %s type veth peer name eth0 netns %s", port, namespace),
		fmt.Sprintf("link set %s master switch up", port),
	})
	if err != nil {
		return err
	}
	if err := host.InNamespace(namespace, c.setSysctls); err != nil {
		return err
	}
	return host.IPLines(ctx, namespace, append([]string{"link set lo up"}, lines...))
}

// nodeNetwork routes other nodes' pods to their nodes. The service range needs
// a route as well, though nothing ever answers there: the kernel looks one up
// before kube-proxy's rules get to see what a process of the node sends.
func (c *Cluster) nodeNetwork(node int) []string {
	lines := addressLines("eth0", c.NodeAddrs(node))
	lines = append(lines, c.podRoutes("eth0", node)...)
	for i, r := range c.ServiceRanges() {
		lines = append(lines, fmt.Sprintf("route add %s dev eth0 src %s", r, c.NodeAddrs(node)[i]))
	}
	return lines
}

// playerNetwork lets players reach nodes and, through the first one, services.
// Pods have no route here, as for players out in the world.
func (c *Cluster) playerNetwork() []string {
	return append(addressLines("eth0", c.PlayerAddrs()), c.serviceRoutes("eth0")...)
}

func addressLines(link string, addrs []netip.Addr) []string {
	var lines []string
	for _, addr := range addrs {
		if addr.Is6() {
			// Nobody else is on this bridge: waiting for a duplicate address
			// to show up would only delay the first packets.
			lines = append(lines, fmt.Sprintf("addr add %s/64 dev %s nodad", addr, link))
			continue
		}
		lines = append(lines, fmt.Sprintf("addr add %s/24 dev %s", addr, link))
	}
	return append(lines, fmt.Sprintf("link set %s up", link))
}

func (c *Cluster) podRoutes(link string, except int) []string {
	var lines []string
	for node := 1; node <= c.Nodes; node++ {
		if node == except {
			continue
		}
		for i, r := range c.PodRanges(node) {
			lines = append(lines, fmt.Sprintf("route add %s via %s dev %s", r, c.NodeAddrs(node)[i], link))
		}
	}
	return lines
}

func (c *Cluster) serviceRoutes(link string) []string {
	var lines []string
	for i, r := range c.ServiceRanges() {
		lines = append(lines, fmt.Sprintf("route add %s via %s dev %s", r, c.NodeAddrs(1)[i], link))
	}
	return lines
}

// setSysctls makes a namespace forward packets. It runs in the namespace, and
// these settings are the namespace's own.
func (c *Cluster) setSysctls() error {
	settings := map[string]string{"net/ipv4/ip_forward": "1"}
	if c.IPv6 {
		settings["net/ipv6/conf/all/forwarding"] = "1"
		settings["net/ipv6/conf/default/accept_dad"] = "0"
	}
	for name, value := range settings {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set sysctl %s: %w", name, err)
		}
	}
	return nil
}

// InPlayer calls f in the network namespace of the players. Sockets that f
// makes stay in it for good, so a connection may be used anywhere afterwards.
//
// f runs on an operating system thread of its own. What it starts with "go"
// runs outside of the namespace, and so does a lookup of a name, or a dial of
// one: dial addresses only.
func (c *Cluster) InPlayer(f func() error) error {
	return host.InNamespace(plan.PlayerNamespace, f)
}

// InNode calls f in the network namespace of a node, as [Cluster.InPlayer]
// does. Nodes are numbered from 1.
func (c *Cluster) InNode(node int, f func() error) error {
	if err := c.checkNode(node); err != nil {
		return err
	}
	return host.InNamespace(c.NodeNamespace(node), f)
}

func (c *Cluster) checkNode(node int) error {
	if node < 1 || node > c.Nodes {
		return fmt.Errorf("pick node %d: the cluster has 1 to %d", node, c.Nodes)
	}
	return nil
}
