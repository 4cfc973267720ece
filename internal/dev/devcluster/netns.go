package devcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// namespaceDir is where iproute2 keeps named network namespaces.
const namespaceDir = "/run/netns"

// InPlayer calls f in the network namespace of the players. Sockets that f
// makes stay in it for good, so a connection may be used anywhere afterwards.
//
// f runs on an operating system thread of its own. What it starts with "go"
// runs outside of the namespace, and so does a lookup of a name, or a dial of
// one: dial addresses only.
func (c *Cluster) InPlayer(f func() error) error {
	return inNamespace(playerNamespace, f)
}

// InNode calls f in the network namespace of a node, as [Cluster.InPlayer]
// does. Nodes are numbered from 1.
func (c *Cluster) InNode(node int, f func() error) error {
	if err := c.checkNode(node); err != nil {
		return err
	}
	return inNamespace(c.NodeNamespace(node), f)
}

func (c *Cluster) checkNode(node int) error {
	if node < 1 || node > c.Nodes {
		return fmt.Errorf("pick node %d: the cluster has 1 to %d", node, c.Nodes)
	}
	return nil
}

func inNamespace(name string, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- onThread(name, f) }()
	return <-result
}

// onThread enters the namespace, calls f and goes back. A thread that can't go
// back stays locked, and the runtime ends it with its goroutine.
func onThread(name string, f func() error) error {
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer before.Close()
	wanted, err := os.Open(filepath.Join(namespaceDir, name))
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer wanted.Close()
	if err := enterNetwork(wanted); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	err = f()
	if back := enterNetwork(before); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", name, back))
	}
	runtime.UnlockOSThread()
	return err
}
