package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Container is the processes of one running container, for tests that end or
// freeze it behind Kubernetes' back.
type Container struct {
	processes []record
}

// Container finds the processes of a container by its runtime's ID. Kubelet
// names a container's cgroup by it.
func (c *Cluster) Container(id string) (Container, error) {
	var found Container
	for _, mount := range c.cgroup.mounts {
		group, err := findGroup(filepath.Join(mount, cgroupName), id)
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
				found.processes = append(found.processes, record{Kind: kindProcess, Name: "container " + id, PID: pid, Started: startOf(pid)})
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
			return ignoreGone(err)
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
		errs = append(errs, p.stop(ctx))
	}
	return errors.Join(errs...)
}

// Pause freezes the container: it keeps its connections and answers nothing.
func (c Container) Pause() error { return c.signal(syscall.SIGSTOP) }

// Resume undoes Pause. A container that has ended meanwhile is not an error.
func (c Container) Resume() error { return c.signal(syscall.SIGCONT) }

func (c Container) signal(s syscall.Signal) error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.signal(s))
	}
	return errors.Join(errs...)
}
