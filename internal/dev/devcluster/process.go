package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// startOf identifies the process that has a pid now: the boot and the clock
// tick it started at. A pid that was given to another process since, or before
// a reboot, has another. It is empty when there is no such process, or only a
// zombie.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	ticks, state := parseStat(stat)
	if state == "Z" || state == "X" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + ticks
}

// parseStat reads the start time (field 22) and the state (field 3) of
// proc_pid_stat(5). The second field is a name in parentheses that may have
// anything in it.
func parseStat(stat []byte) (ticks, state string) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", ""
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 {
		return "", ""
	}
	return fields[19], fields[0]
}

// alive tells whether the recorded process still runs.
func (r record) alive() bool {
	return r.PID > 0 && r.Started != "" && startOf(r.PID) == r.Started
}

// signal sends a signal to the recorded process, and to nothing else: a
// process that is gone is not an error.
func (r record) signal(s syscall.Signal) error {
	// The handle stays with the process it was opened for, so that the check
	// and the signal are about the same one.
	handle, err := os.FindProcess(r.PID)
	if err != nil {
		return nil
	}
	defer func() { _ = handle.Release() }()
	if !r.alive() {
		return nil
	}
	if err := handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s (pid %d): %w", r.Name, r.PID, err)
	}
	return nil
}

// stop kills the recorded process and waits until it is gone.
func (r record) stop(ctx context.Context) error {
	if err := r.signal(syscall.SIGKILL); err != nil {
		return err
	}
	return until(ctx, 10*time.Second, func(context.Context) error {
		if r.alive() {
			return fmt.Errorf("stop %s: pid %d does not end", r.Name, r.PID)
		}
		return nil
	})
}

// start starts a component in the cluster's cgroup and in a session of its
// own, so that it outlives the command that started it, and records it.
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
	group, err := os.Open(c.cgroup.processes())
	if err != nil {
		return fmt.Errorf("open cgroup for %s: %w", comp.name, err)
	}
	defer group.Close()

	if err := keepFiles(); err != nil {
		return fmt.Errorf("keep files from %s: %w", comp.name, err)
	}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it outlives the context of whoever starts it
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, comp.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = detached(group)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", comp.name, err)
	}
	// While this program lives it is the parent, and has to reap.
	go func() { _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	return c.ledger.add(record{Kind: kindProcess, Name: comp.name, PID: pid, Started: startOf(pid)})
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
	if !holder.alive() {
		return nil, fmt.Errorf("start %s: node %d's namespaces are gone", comp.name, comp.node)
	}
	enter := []string{"nsenter", fmt.Sprintf("--target=%d", holder.PID), "--mount", "--net", "--"}
	return append(enter, comp.argv...), nil
}

// process is the latest process of a component.
func (c *Cluster) process(name string) (record, error) {
	processes, err := c.ledger.processes()
	if err != nil {
		return record{}, err
	}
	r, ok := processes[name]
	if !ok {
		return record{}, fmt.Errorf("find process of %s: it was never started", name)
	}
	return r, nil
}

// dead names the components that should run and don't.
func (c *Cluster) dead() ([]string, error) {
	processes, err := c.ledger.processes()
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, comp := range c.components() {
		if r, ok := processes[comp.name]; !ok || !r.alive() {
			dead = append(dead, comp.name)
		}
	}
	return dead, nil
}
