package hosting

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How many nodes are read to find an address of one that is ready, and for how long that is used.
const (
	nodesRead  = 50
	addressFor = 30 * time.Second
)

// NodeAddress finds the address of a node, where node ports are reached. It remembers it.
type NodeAddress struct {
	// Client reads nodes.
	Client client.Reader
	// Now is the clock.
	Now func() time.Time

	mu    sync.Mutex
	found string
	until time.Time
}

// Get is the ExternalIP, or else the InternalIP, of a node that is ready; empty where none is found.
func (n *NodeAddress) Get(ctx context.Context) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.Now()
	if now.Before(n.until) {
		return n.found
	}
	n.until = now.Add(addressFor)
	var nodes corev1.NodeList
	if err := n.Client.List(ctx, &nodes, client.Limit(nodesRead)); err != nil {
		return n.found
	}
	n.found = ""
	for i := range nodes.Items {
		if ready(&nodes.Items[i]) {
			n.found = cmp.Or(n.found, address(&nodes.Items[i], corev1.NodeExternalIP))
		}
	}
	for i := range nodes.Items {
		if ready(&nodes.Items[i]) {
			n.found = cmp.Or(n.found, address(&nodes.Items[i], corev1.NodeInternalIP))
		}
	}
	return n.found
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func address(n *corev1.Node, of corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == of {
			return a.Address
		}
	}
	return ""
}
