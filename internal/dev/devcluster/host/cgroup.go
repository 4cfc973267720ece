package host

import (
	"bufio"
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
	"time"

	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
)

const cgroupName = "dormouse-devcluster"

// Cgroup is the part of the machine's cgroup tree that is the cluster's. Every
// process of the cluster is born in it, containers and their shims too, which
// is how those are found that nobody wrote down.
type Cgroup struct {
	// unified is where the second version of cgroups is mounted.
	unified string
	// mounts are all hierarchies, the unified one and those of the first
	// version; kubelets make groups in each.
	mounts []string
}

// FindCgroup finds where the machine's hierarchies are mounted. It makes no group.
func FindCgroup() (Cgroup, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return Cgroup{}, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	var c Cgroup
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			c.unified = fields[1]
			c.mounts = append(c.mounts, fields[1])
		case "cgroup":
			c.mounts = append(c.mounts, fields[1])
		}
	}
	if err := lines.Err(); err != nil {
		return Cgroup{}, fmt.Errorf("list mounts: %w", err)
	}
	if c.unified == "" {
		return Cgroup{}, errors.New("find cgroups: a mounted cgroup2 hierarchy is needed")
	}
	return c, nil
}

// Root is the cluster's group in the unified hierarchy.
func (c Cgroup) Root() string { return filepath.Join(c.unified, cgroupName) }

// Roots are the cluster's groups, one in each hierarchy.
func (c Cgroup) Roots() []string {
	roots := make([]string, len(c.mounts))
	for i, mount := range c.mounts {
		roots[i] = filepath.Join(mount, cgroupName)
	}
	return roots
}

// processes is the group of the components. It is a leaf: with cgroup v2 a
// group that has controllers for its children can't have processes.
func (c Cgroup) processes() string { return filepath.Join(c.Root(), "components") }

// PodCgroup is the cgroup below which a node's containers are, as kubelet names it.
func PodCgroup(nodeName string) string { return filepath.Join("/", cgroupName, nodeName) }

// Create makes the components' group, and the groups that the nodes' kubelets want to
// find in every hierarchy.
func (c Cgroup) Create(nodes []string) error {
	groups := []string{c.processes()}
	for _, mount := range c.mounts {
		for _, node := range nodes {
			groups = append(groups, filepath.Join(mount, PodCgroup(node)))
		}
	}
	for _, group := range groups {
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return c.giveShares()
}

// podShares is the weight of all Pods together where each of the machine's other
// processes has 1024: with as much as one of them, twenty Pods get next to
// nothing while the components and a test are busy.
const podShares = "16384"

// giveShares weighs the Pods in the hierarchies of the first version. The second
// one has no process beside the Pods' group that would compete with it alone.
func (c Cgroup) giveShares() error {
	for _, root := range c.Roots() {
		file := filepath.Join(root, "cpu.shares")
		if _, err := os.Stat(file); err != nil {
			continue // not the hierarchy of the processors
		}
		if err := os.WriteFile(file, []byte(podShares), 0o644); err != nil {
			return fmt.Errorf("weigh the Pods' cgroup: %w", err)
		}
	}
	return nil
}

// Remove kills every process in the cluster's groups and removes the groups.
func (c Cgroup) Remove(ctx context.Context) error {
	err := wait.Until(ctx, 20*time.Second, func(context.Context) error {
		left := 0
		for _, root := range c.Roots() {
			pids, err := pidsBelow(root)
			if err != nil {
				return err
			}
			left += len(pids)
			for _, pid := range pids {
				// The pid was in the group a moment ago, and a process leaves
				// the group only by ending.
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left > 0 {
			return fmt.Errorf("kill processes of the cluster: %d are left", left)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, root := range c.Roots() {
		if err := removeTree(ctx, root); err != nil {
			return err
		}
	}
	return nil
}

func pidsBelow(group string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return IgnoreGone(err)
		}
		content, err := os.ReadFile(path) //nolint:gosec // cgroups have no links to be led astray by
		for word := range strings.FieldsSeq(string(content)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return IgnoreGone(err)
	})
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", group, err)
	}
	return pids, nil
}

// removeTree removes a group and those below it, the deepest first. The kernel
// may call a group busy for a moment after its last process ended.
func removeTree(ctx context.Context, group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return IgnoreGone(err)
	})
	if err != nil {
		return fmt.Errorf("list cgroups below %s: %w", group, err)
	}
	for _, deepest := range slices.Backward(groups) {
		err := wait.Until(ctx, 5*time.Second, func(context.Context) error { return IgnoreGone(os.Remove(deepest)) })
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", deepest, err)
		}
	}
	return nil
}
