package devcluster

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"dormouse.dev/dormouse/internal/dev/devcluster/container"
	"dormouse.dev/dormouse/internal/dev/devcluster/host"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
)

// Components are the names of everything that runs on the cluster's behalf
// besides pods.
func (c *Cluster) Components() []string {
	var names []string
	for _, comp := range c.components() {
		if !comp.holder {
			names = append(names, comp.name)
		}
	}
	return names
}

// Kill ends a component the hard way and waits until it is gone. It stays
// away until [Cluster.Start].
func (c *Cluster) Kill(ctx context.Context, name string) error {
	r, err := c.process(name)
	if err != nil {
		return err
	}
	return r.Stop(ctx)
}

// Start starts a component that does not run, and waits until it takes
// connections. A kubelet ends when it finds no containerd: start that first.
func (c *Cluster) Start(ctx context.Context, name string) error {
	comp, err := c.component(name)
	if err != nil {
		return err
	}
	if r, err := c.process(name); err == nil && r.Alive() {
		return fmt.Errorf("start %s: it runs", name)
	}
	if err := c.start(comp); err != nil {
		return err
	}
	started, err := c.process(name)
	if err != nil {
		return err
	}
	err = wait.Until(ctx, 30*time.Second, func(ctx context.Context) error {
		if !started.Alive() {
			return wait.Final(fmt.Errorf("start %s: it ended", name))
		}
		return c.listening(ctx, comp)
	})
	return c.blame(name, err)
}

// listening fails while a component takes no connections.
func (c *Cluster) listening(ctx context.Context, comp component) error {
	dial := func(network string) func() error {
		return func() error {
			conn, err := new(net.Dialer).DialContext(ctx, network, comp.listens)
			if err != nil {
				return fmt.Errorf("wait for %s: %w", comp.name, err)
			}
			return conn.Close()
		}
	}
	switch {
	case strings.HasPrefix(comp.listens, "/"):
		return dial("unix")()
	case comp.node > 0:
		return c.InNode(comp.node, dial("tcp"))
	}
	return dial("tcp")()
}

// Restart is Kill and Start.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	if err := c.Kill(ctx, name); err != nil {
		return err
	}
	return c.Start(ctx, name)
}

// Pause freezes a component: it keeps its connections and answers nothing.
func (c *Cluster) Pause(name string) error { return c.signal(name, syscall.SIGSTOP) }

// Resume undoes Pause.
func (c *Cluster) Resume(name string) error { return c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s syscall.Signal) error {
	r, err := c.process(name)
	if err != nil {
		return err
	}
	return r.Signal(s)
}

// Container finds a container by its runtime's ID.
func (c *Cluster) Container(id string) (container.Container, error) {
	return container.Find(c.cgroup, id)
}

// CutNode pulls a node's plug: no packet enters or leaves, while everything on
// it goes on running.
func (c *Cluster) CutNode(ctx context.Context, node int) error { return c.setPort(ctx, node, "down") }

// RestoreNode undoes CutNode.
func (c *Cluster) RestoreNode(ctx context.Context, node int) error { return c.setPort(ctx, node, "up") }

// setPort works at the switch's end of the cable: taking the node's own end
// down would lose its routes.
func (c *Cluster) setPort(ctx context.Context, node int, state string) error {
	if err := c.checkNode(node); err != nil {
		return err
	}
	return host.IP(ctx, "-netns", plan.SwitchNamespace, "link", "set", c.NodeName(node), state)
}
