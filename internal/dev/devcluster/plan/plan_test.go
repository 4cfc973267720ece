package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNoTwoThingsOfAPlanShareAnAddress(t *testing.T) {
	p := Plan{Nodes: MaxNodes, IPv6: true}
	taken := map[netip.Addr]string{}
	claim := func(owner string, addrs []netip.Addr) {
		for i, addr := range addrs {
			if other, ok := taken[addr]; ok {
				t.Errorf("%s and %s both have %s", owner, other, addr)
			}
			taken[addr] = owner
			if !p.NodeRanges()[i].Contains(addr) {
				t.Errorf("%s of %s is outside of %s", addr, owner, p.NodeRanges()[i])
			}
		}
	}
	claim("host", p.HostAddrs())
	claim("player", p.PlayerAddrs())
	var pods []netip.Prefix
	for node := 1; node <= p.Nodes; node++ {
		claim(p.NodeName(node), p.NodeAddrs(node))
		for i, r := range p.PodRanges(node) {
			if !p.ClusterRanges()[i].Overlaps(r) {
				t.Errorf("pods of node %d are outside of %s: %s", node, p.ClusterRanges()[i], r)
			}
			for _, other := range pods {
				if other.Overlaps(r) {
					t.Errorf("pod ranges %s and %s overlap", r, other)
				}
			}
			pods = append(pods, r)
		}
	}
}

func TestAPlanWithoutIPv6HasIPv4Only(t *testing.T) {
	p := Plan{Nodes: 2}
	got := []string{List(p.NodeAddrs(2)), List(p.PodRanges(2)), List(p.ServiceRanges()), List(p.DNSAddrs())}
	want := []string{"10.250.0.12", "10.244.2.0/24", "10.96.0.0/16", "10.96.0.10"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestADualStackPlanListsIPv4First(t *testing.T) {
	p := Plan{Nodes: 2, IPv6: true}
	got := []string{List(p.NodeAddrs(1)), List(p.PodRanges(1)), List(p.DNSAddrs()), p.APIServerURL()}
	want := []string{
		"10.250.0.11,fd4d:6f75:7365:250::b", "10.244.1.0/24,fd4d:6f75:7365:f401::/64",
		"10.96.0.10,fd4d:6f75:7365:96::a", "https://10.250.0.1:6443",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestAPlanRefusesTooFewAndTooManyNodes(t *testing.T) {
	for nodes, valid := range map[int]bool{0: false, 1: false, 2: true, MaxNodes: true, MaxNodes + 1: false} {
		if err := (Plan{Nodes: nodes}).Validate(); (err == nil) != valid {
			t.Errorf("validate of %d nodes: %v", nodes, err)
		}
	}
}

func TestAnAddressOfTheMachineInsideTheClustersRangesIsFound(t *testing.T) {
	p := Plan{Nodes: 2, IPv6: true}
	for addr, overlaps := range map[string]bool{
		"192.168.1.5/24": false, "10.0.0.5/24": false, "10.244.7.1/24": true, "10.0.0.1/8": true, "fd4d:6f75:7365:250::9/64": true,
	} {
		if _, got := p.Overlapping([]netip.Prefix{netip.MustParsePrefix(addr)}); got != overlaps {
			t.Errorf("%s overlaps: %v, want %v", addr, got, overlaps)
		}
	}
}
