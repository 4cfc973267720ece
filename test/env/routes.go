package env

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// WaitRouted waits until kube-proxy on every node of the local cluster sends an
// ElasticService's clients to the resolver, in each of its address families. It
// looks at the rules themselves, since a connection would wake the service.
func (e *Env) WaitRouted(ctx context.Context, es *v1alpha1.ElasticService, families int) error {
	return e.waitRules(ctx, families, "routes "+es.Name+" to the resolver", func(rules string) bool {
		for _, p := range es.Status.Ports {
			if !routes(rules, p) {
				return false
			}
		}
		return true
	})
}

// WaitDirect waits until kube-proxy on every node of the local cluster sends an
// ElasticService's new clients somewhere, and to no resolver: it refuses those of a Service
// whose endpoints it hasn't heard of.
func (e *Env) WaitDirect(ctx context.Context, es *v1alpha1.ElasticService, families int) error {
	return e.waitRules(ctx, families, "routes "+es.Name+" past the resolver", func(rules string) bool {
		for _, p := range es.Status.Ports {
			if routes(rules, p) || !leads(rules, es, p) {
				return false
			}
		}
		return true
	})
}

// routes reports whether kube-proxy's rules send clients to a resolver port.
func routes(rules string, p v1alpha1.PortStatus) bool {
	target := fmt.Sprintf(" . %d", p.ResolverPort)
	return strings.Contains(rules, target+" }") || strings.Contains(rules, target+",")
}

// leads reports whether kube-proxy's rules send a Service's clients to any endpoint.
func leads(rules string, es *v1alpha1.ElasticService, p v1alpha1.PortStatus) bool {
	name := regexp.QuoteMeta(fmt.Sprintf("-%s/%s/%s/%s", es.Namespace, es.Spec.Service, strings.ToLower(string(p.Protocol.Transport())), p.Name))
	return regexp.MustCompile("goto service-[A-Z0-9]+" + name + `[,\s]`).MatchString(rules)
}

// waitRules waits until the rules of every node are as wanted, in each of the
// address families.
func (e *Env) waitRules(ctx context.Context, families int, what string, ok func(rules string) bool) error {
	for node := 1; node <= e.Cluster.Nodes; node++ {
		for _, family := range []string{"ip", "ip6"}[:families] {
			err := WaitUntil(ctx, fmt.Sprintf("kube-proxy of node %d %s", node, what), func(ctx context.Context) (bool, error) {
				rules, err := e.rules(ctx, node, family)
				return err == nil && ok(rules), err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// WaitUnrouted waits until kube-proxy of no node of the local cluster sends new
// clients to a pod's address.
func (e *Env) WaitUnrouted(ctx context.Context, address string) error {
	return e.waitPod(ctx, address, "sends nobody to", false)
}

// WaitPodRouted waits until kube-proxy of every node of the local cluster sends new
// clients to a pod's address.
func (e *Env) WaitPodRouted(ctx context.Context, address string) error {
	return e.waitPod(ctx, address, "sends clients to", true)
}

func (e *Env) waitPod(ctx context.Context, address, what string, routed bool) error {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("read a pod's address: %w", err)
	}
	family := "ip6"
	if ip.Is4() {
		family = "ip"
	}
	for node := 1; node <= e.Cluster.Nodes; node++ {
		err := WaitUntil(ctx, fmt.Sprintf("kube-proxy of node %d %s %s", node, what, address), func(ctx context.Context) (bool, error) {
			rules, err := e.rules(ctx, node, family)
			return strings.Contains(rules, " "+address+" . ") == routed, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rules are a node's firewall rules by kube-proxy.
func (e *Env) rules(ctx context.Context, node int, family string) (string, error) {
	var out []byte
	err := e.Cluster.InNode(node, func() (err error) {
		out, err = exec.CommandContext(ctx, "nft", "list", "table", family, "kube-proxy").Output()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list the rules of node %d: %w", node, err)
	}
	return string(out), nil
}
