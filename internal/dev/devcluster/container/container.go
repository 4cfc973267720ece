// Package container finds the processes of a running container, and ends or freezes them behind
// Kubernetes' back.
package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"dormouse.dev/dormouse/internal/dev/devcluster/host"
)

// Container is the processes of one running container.
type Container struct {
	processes []host.Record
}

// Find finds the processes of a container in a cgroup by its runtime's ID. Kubelet
// names a container's cgroup by it.
func Find(in host.Cgroup, id string) (Container, error) {
	var found Container
	for _, root := range in.Roots() {
		group, err := findGroup(root, id)
		if err != nil {
			return found, err
		}
		if group == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil {
			return found, fmt.Errorf("list processes of container %s: %w", id, err)
		}
		for word := range strings.FieldsSeq(string(content)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				found.processes = append(found.processes, host.RecordOf("container "+id, pid))
			}
		}
		if len(found.processes) > 0 {
			return found, nil
		}
	}
	return found, fmt.Errorf("find container %s: it has no process on this machine", id)
}

// findGroup gives the cgroup of a name below another, or nothing.
func findGroup(root, name string) (string, error) {
	found := ""
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() != name {
			return host.IgnoreGone(err)
		}
		found = path
		return filepath.SkipAll
	})
	if err != nil {
		return "", fmt.Errorf("look for cgroup %s: %w", name, err)
	}
	return found, nil
}

// Kill ends the container the hard way and waits until it is gone. Kubelet
// starts another in its place.
func (c Container) Kill(ctx context.Context) error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Terminate asks the container to end, as kubelet does, and doesn't wait for it.
func (c Container) Terminate() error { return c.signal(syscall.SIGTERM) }

// Pause freezes the container: it keeps its connections and answers nothing.
func (c Container) Pause() error { return c.signal(syscall.SIGSTOP) }

// Resume undoes Pause. A container that has ended meanwhile is not an error.
func (c Container) Resume() error { return c.signal(syscall.SIGCONT) }

func (c Container) signal(s syscall.Signal) error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.Signal(s))
	}
	return errors.Join(errs...)
}

// DatagramsDropped counts the UDP datagrams that the container's sockets had no
// room for. All containers of a pod share the count.
func (c Container) DatagramsDropped() (int64, error) {
	path := fmt.Sprintf("/proc/%d/net/snmp", c.processes[0].PID)
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read counters: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if i := slices.Index(names, "RcvbufErrors"); i >= 0 && i < len(words) {
			n, err := strconv.ParseInt(words[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read counters of %s: %w", path, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read counters of %s: no RcvbufErrors of UDP", path)
}

// Mounts are the paths inside the container at which something is mounted.
func (c Container) Mounts() ([]string, error) {
	path := fmt.Sprintf("/proc/%d/mountinfo", c.processes[0].PID)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var mounts []string
	for line := range strings.Lines(string(content)) {
		// The fifth word of proc(5)'s mountinfo is where the mount is.
		if words := strings.Fields(line); len(words) > 4 {
			mounts = append(mounts, words[4])
		}
	}
	return mounts, nil
}

// Files are the container's files as its processes see them. The caller closes
// them.
func (c Container) Files() (*os.Root, error) {
	files, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", c.processes[0].PID))
	if err != nil {
		return nil, fmt.Errorf("open a container's files: %w", err)
	}
	return files, nil
}

// Environment is that of the container's first process, as NAME=value.
func (c Container) Environment() ([]string, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.processes[0].PID))
	if err != nil {
		return nil, fmt.Errorf("read a container's environment: %w", err)
	}
	return strings.Split(strings.TrimRight(string(content), "\x00"), "\x00"), nil
}
