package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/devcluster/host"
	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
	"dormouse.dev/dormouse/internal/dev/devcluster/progress"
	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
)

// Up makes sure that the machine's cluster is up and well. A cluster that is
// already well is left alone; what is left of a broken one, or of an Up that
// did not get to its end, is removed first. When Up fails, or ctx ends, it
// removes what it made and keeps the logs.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	wanted, err := o.state()
	if err != nil {
		return nil, err
	}
	unlock, err := host.Lock(layout{StateDir}.lockPath())
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch running, err := reuse(ctx, wanted, o.Progress); {
	case err != nil:
		return nil, err
	case running != nil:
		return running, running.linkKubeconfig(wanted)
	}
	c, err := attach(wanted)
	if err != nil {
		return nil, err
	}
	if err := progress.Run(ctx, o.Progress, c.upSteps(wanted, o)); err != nil {
		// The caller's context may be what ended it.
		if removing := c.remove(context.WithoutCancel(ctx)); removing != nil {
			return nil, errors.Join(err, removing)
		}
		return nil, err
	}
	fmt.Fprintf(o.Progress, "the cluster is up: export KUBECONFIG=%s\n", c.Kubeconfig())
	return c, nil
}

// state checks the options and turns them into the cluster they ask for.
func (o Options) state() (state, error) {
	for _, check := range []func() error{binaries.CheckMachine, binaries.CheckPackages} {
		if err := check(); err != nil {
			return state{}, err
		}
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	shape := plan.Plan{Nodes: o.Nodes, IPv6: hostHasIPv6()}
	if err := shape.Validate(); err != nil {
		return state{}, err
	}
	if o.Repo == "" {
		found, err := binaries.FindRepo()
		if err != nil {
			return state{}, err
		}
		o.Repo = found
	}
	repo, err := filepath.Abs(o.Repo)
	if err != nil {
		return state{}, fmt.Errorf("find the project's root: %w", err)
	}
	s := state{Plan: shape, BinDir: filepath.Join(repo, "bin")}
	if o.Kubeconfig != "" {
		if s.Kubeconfig, err = filepath.Abs(o.Kubeconfig); err != nil {
			return state{}, fmt.Errorf("find place for kubeconfig: %w", err)
		}
	}
	return s, nil
}

// reuse returns the cluster that is up, if it is well.
func reuse(ctx context.Context, wanted state, progress io.Writer) (*Cluster, error) {
	running, err := Open()
	if errors.Is(err, ErrNotUp) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if running.Nodes != wanted.Plan.Nodes {
		return nil, fmt.Errorf("bring up %d nodes: a cluster of %d is up; take it down first", wanted.Plan.Nodes, running.Nodes)
	}
	if err := running.Check(ctx); err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Fprintf(progress, "the cluster that is up is broken, making a new one: %s\n", why)
		return nil, nil
	}
	fmt.Fprintf(progress, "the cluster is up already: export KUBECONFIG=%s\n", running.Kubeconfig())
	return running, nil
}

func (c *Cluster) upSteps(s state, o Options) []progress.Step {
	return []progress.Step{
		{Title: "build the binaries", Run: func(ctx context.Context) error {
			_, err := binaries.Build(ctx, filepath.Dir(c.BinDir), o.Progress)
			return err
		}},
		{Title: "build the images", Run: func(context.Context) error { return c.buildImages() }},
		{Title: "remove what an earlier cluster left", Run: func(ctx context.Context) error {
			if err := c.remove(ctx); err != nil {
				return err
			}
			return os.RemoveAll(c.logs())
		}},
		{Title: "write certificates and configuration", Run: func(context.Context) error { return c.configure() }},
		{Title: "set up the network", Run: c.setUpNetwork},
		{Title: "start the control plane and the nodes", Run: c.startAll},
		{Title: "wait for the API server", Run: c.setUpAPI},
		{Title: "wait for the nodes and the DNS", Run: func(ctx context.Context) error {
			if err := wait.Until(ctx, 2*time.Minute, c.ready); err != nil {
				return c.blame(NodeComponent(Kubelet, 1), err)
			}
			if err := s.save(); err != nil {
				return err
			}
			return c.linkKubeconfig(s)
		}},
	}
}

// setUpNetwork refuses to shadow addresses that the machine has already.
func (c *Cluster) setUpNetwork(ctx context.Context) error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list the machine's addresses: %w", err)
	}
	var prefixes []netip.Prefix
	for _, addr := range addrs {
		if p, err := netip.ParsePrefix(addr.String()); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	if taken, ok := c.Overlapping(prefixes); ok {
		return fmt.Errorf("set up the network: the machine's own %s is in a range of the cluster", taken)
	}
	return c.connectAll(ctx)
}

// startAll starts every process. A control plane waits for its parts by
// itself; a node's need the node's namespaces.
func (c *Cluster) startAll(ctx context.Context) error {
	if err := c.ledger.Add(host.Record{Kind: host.KindCgroup, Name: c.cgroup.Root()}); err != nil {
		return err
	}
	var nodes []string
	for node := 1; node <= c.Nodes; node++ {
		nodes = append(nodes, c.NodeName(node))
	}
	if err := c.cgroup.Create(nodes); err != nil {
		return err
	}
	for _, comp := range c.controlPlane() {
		if err := c.start(comp); err != nil {
			return err
		}
	}
	var starting errgroup.Group
	for node := 1; node <= c.Nodes; node++ {
		starting.Go(func() error { return c.startNode(ctx, node) })
	}
	return starting.Wait()
}

func (c *Cluster) startNode(ctx context.Context, node int) error {
	images := c.imageArchives()
	for _, comp := range c.nodeComponents(node) {
		if err := c.start(comp); err != nil {
			return err
		}
		var ready func(context.Context) error
		switch comp.name {
		case holderName(node):
			ready = func(context.Context) error { return c.held(node) }
		case NodeComponent(Containerd, node):
			ready = func(ctx context.Context) error { return c.loadInto(ctx, node, images...) }
		default:
			continue
		}
		if err := wait.Until(ctx, 30*time.Second, ready); err != nil {
			return c.blame(comp.name, fmt.Errorf("start %s: %w", comp.name, err))
		}
	}
	return nil
}

// held fails while a node's holder isn't done with the node's mounts.
func (c *Cluster) held(node int) error {
	r, err := c.process(holderName(node))
	if err != nil {
		return err
	}
	if !r.Alive() {
		return wait.Final(errors.New("it ended"))
	}
	_, err = os.Stat(c.node(node, "ready"))
	return err
}

// linkKubeconfig puts a link where the options asked for one.
func (c *Cluster) linkKubeconfig(s state) error {
	if s.Kubeconfig == "" || s.Kubeconfig == c.Kubeconfig() {
		return nil
	}
	if target, err := os.Readlink(s.Kubeconfig); err == nil && target == c.Kubeconfig() {
		return nil
	}
	if err := c.ledger.Add(host.Record{Kind: host.KindLink, Name: s.Kubeconfig}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.Kubeconfig), 0o755); err != nil {
		return fmt.Errorf("make directory for kubeconfig: %w", err)
	}
	return host.ReplaceLink(s.Kubeconfig, c.Kubeconfig())
}

// hostHasIPv6 reports whether the kernel has IPv6 and lets it be used.
func hostHasIPv6() bool {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
	return err == nil && len(off) > 0 && off[0] == '0'
}
