package devcluster

import (
	"fmt"
	"os"

	"dormouse.dev/dormouse/internal/dev/devcluster/host"
)

// start starts a component and records it.
func (c *Cluster) start(comp component) error {
	log, err := os.OpenFile(c.logPath(comp.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", comp.name, err)
	}
	defer log.Close()
	argv, err := c.placed(comp)
	if err != nil {
		return err
	}
	r, err := c.cgroup.Start(comp.name, argv, comp.env, log)
	if err != nil {
		return err
	}
	return c.ledger.Add(r)
}

// placed is a component's command line with what brings it into its node's
// namespaces in front.
func (c *Cluster) placed(comp component) ([]string, error) {
	if comp.node == 0 || comp.holder {
		return comp.argv, nil
	}
	holder, err := c.process(holderName(comp.node))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", comp.name, err)
	}
	if !holder.Alive() {
		return nil, fmt.Errorf("start %s: node %d's namespaces are gone", comp.name, comp.node)
	}
	nsenter := []string{"nsenter", fmt.Sprintf("--target=%d", holder.PID), "--mount", "--net", "--"}
	return append(nsenter, comp.argv...), nil
}

// process is the latest process of a component.
func (c *Cluster) process(name string) (host.Record, error) {
	processes, err := c.ledger.Processes()
	if err != nil {
		return host.Record{}, err
	}
	r, ok := processes[name]
	if !ok {
		return host.Record{}, fmt.Errorf("find process of %s: it was never started", name)
	}
	return r, nil
}

// dead names the components that should run and don't.
func (c *Cluster) dead() ([]string, error) {
	processes, err := c.ledger.Processes()
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, comp := range c.components() {
		if r, ok := processes[comp.name]; !ok || !r.Alive() {
			dead = append(dead, comp.name)
		}
	}
	return dead, nil
}
