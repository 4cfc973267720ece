package devcluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// ip runs one command of iproute2.
func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ipLines runs several commands of iproute2 in a namespace at once, or on the
// host when it is empty.
func ipLines(ctx context.Context, namespace string, lines []string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-netns", namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set up network %s: %w: %s", namespace, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// connectAll makes the bridge, the host's end of it and a namespace for each
// node and for the players.
func (c *Cluster) connectAll(ctx context.Context) error {
	if err := c.recordNamespaceMount(); err != nil {
		return err
	}
	if err := c.addNamespace(ctx, switchNamespace); err != nil {
		return err
	}
	err := ipLines(ctx, switchNamespace, []string{
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
	return c.connect(ctx, playerNamespace, "player", c.playerNetwork())
}

// recordNamespaceMount: iproute2 makes its directory a mount when there is none
// yet, which is then the cluster's to remove.
func (c *Cluster) recordNamespaceMount() error {
	mounted, err := mountPoints()
	if err != nil {
		return err
	}
	if slices.Contains(mounted, namespaceDir) {
		return nil
	}
	return c.ledger.add(record{Kind: kindMount, Name: namespaceDir})
}

func (c *Cluster) addNamespace(ctx context.Context, name string) error {
	if err := c.ledger.add(record{Kind: kindNamespace, Name: name}); err != nil {
		return err
	}
	return ip(ctx, "netns", "add", name)
}

// connectHost gives the host an address on the bridge and routes to all of the
// cluster's ranges. The unreachable ones stay when the others are gone with
// their interface: a packet for the cluster never takes the default route.
func (c *Cluster) connectHost(ctx context.Context) error {
	if err := c.ledger.add(record{Kind: kindInterface, Name: hostLink}); err != nil {
		return err
	}
	var fallbacks []string
	for _, ranges := range [][]netip.Prefix{c.nodeRanges(), c.ClusterRanges(), c.ServiceRanges()} {
		for _, r := range ranges {
			route := fmt.Sprintf("unreachable %s metric 9999", r)
			if err := c.ledger.add(record{Kind: kindRoute, Name: route}); err != nil {
				return err
			}
			fallbacks = append(fallbacks, "route add "+route)
		}
	}
	lines := append(fallbacks,
		fmt.Sprintf("link add name %s type veth peer name host netns %s", hostLink, switchNamespace))
	lines = append(lines, addressLines(hostLink, c.HostAddrs())...)
	lines = append(lines, c.podRoutes(hostLink, 0)...)
	lines = append(lines, c.serviceRoutes(hostLink)...)
	if err := ipLines(ctx, "", lines); err != nil {
		return err
	}
	return ipLines(ctx, switchNamespace, []string{"link set host master switch up"})
}

// connect makes a namespace whose eth0 is plugged into the bridge at port.
func (c *Cluster) connect(ctx context.Context, namespace, port string, lines []string) error {
	if err := c.addNamespace(ctx, namespace); err != nil {
		return err
	}
	err := ipLines(ctx, switchNamespace, []string{
		fmt.Sprintf("link add name %s type veth peer name eth0 netns %s", port, namespace),
		fmt.Sprintf("link set %s master switch up", port),
	})
	if err != nil {
		return err
	}
	if err := inNamespace(namespace, c.setSysctls); err != nil {
		return err
	}
	return ipLines(ctx, namespace, append([]string{"link set lo up"}, lines...))
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
