package env

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// WaitRouted waits until kube-proxy on every node of the local cluster sends an
// ElasticService's clients to the resolver, in each of its address families. It
// looks at the rules themselves, since a connection would wake the service.
func (e *Env) WaitRouted(ctx context.Context, es *v1alpha1.ElasticService, families int) error {
	for node := 1; node <= e.Cluster.Nodes; node++ {
		for _, family := range []string{"ip", "ip6"}[:families] {
			what := fmt.Sprintf("kube-proxy of node %d routes %s to the resolver", node, es.Name)
			err := WaitUntil(ctx, what, func(ctx context.Context) (bool, error) {
				rules, err := e.rules(ctx, node, family)
				if err != nil {
					return false, err
				}
				for _, p := range es.Status.Ports {
					target := fmt.Sprintf(" . %d", p.ResolverPort)
					if !strings.Contains(rules, target+" }") && !strings.Contains(rules, target+",") {
						return false, nil
					}
				}
				return true, nil
			})
			if err != nil {
				return err
			}
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
