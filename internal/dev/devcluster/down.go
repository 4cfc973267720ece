package devcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Down removes the machine's cluster and every trace of it but the logs. It is
// for a cluster in any condition, and harmless when there is none.
func Down(ctx context.Context, progress io.Writer) error {
	if progress == nil {
		progress = io.Discard
	}
	if err := checkMachine(); err != nil {
		return err
	}
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	c, err := attach(state{})
	if err != nil {
		return err
	}
	records, err := c.ledger.records()
	if err != nil {
		return err
	}
	if len(records) == 0 {
		fmt.Fprintln(progress, "no cluster is up")
	}
	began := time.Now()
	if err := c.remove(ctx); err != nil {
		return err
	}
	if len(records) > 0 {
		fmt.Fprintf(progress, "the cluster is removed (%s); its logs are in %s\n", time.Since(began).Round(100*time.Millisecond), c.logs())
	}
	return nil
}

// remove undoes the ledger from its end. Processes go first, whatever their
// place: nothing can be removed from under them, and they might make more.
func (c *Cluster) remove(ctx context.Context) error {
	records, err := c.ledger.records()
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range records {
		if r.Kind == kindProcess {
			failed = append(failed, r.signal(syscall.SIGKILL))
		}
	}
	if len(records) > 0 {
		failed = append(failed, c.cgroup.remove(ctx))
	}
	for _, r := range slices.Backward(records) {
		failed = append(failed, c.undo(ctx, r))
	}
	failed = append(failed, unmountBelow(c.dir))
	if err := errors.Join(failed...); err != nil {
		// The ledger stays, so that the next attempt knows what is left.
		return fmt.Errorf("remove the cluster: %w", err)
	}
	return c.removeFiles()
}

func (c *Cluster) undo(ctx context.Context, r record) error {
	switch r.Kind {
	case kindProcess, kindCgroup:
		// These went first.
	case kindNamespace:
		return removeNamespace(r.Name)
	case kindInterface:
		return unlessGone(ip(ctx, "link", "del", r.Name), "Cannot find device")
	case kindRoute:
		return removeRoute(ctx, r.Name)
	case kindMount:
		return removeEmptyMount(r.Name)
	case kindLink:
		if target, _ := os.Readlink(r.Name); target == c.Kubeconfig() {
			return os.Remove(r.Name)
		}
	}
	return nil
}

func removeNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	if err := unmount(path); err != nil {
		return fmt.Errorf("unmount network namespace %s: %w", name, err)
	}
	if err := ignoreGone(os.Remove(path)); err != nil {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	return nil
}

// removeRoute removes a route that may be gone already.
func removeRoute(ctx context.Context, route string) error {
	args := append(routeFamily(route), "route", "del")
	return unlessGone(ip(ctx, append(args, strings.Fields(route)...)...), "No such process")
}

// unlessGone drops the error with which iproute2 says that there is nothing to
// remove.
func unlessGone(err error, message string) error {
	if err != nil && strings.Contains(err.Error(), message) {
		return nil
	}
	return err
}

func routeFamily(route string) []string {
	if strings.Contains(route, ":") {
		return []string{"-6"}
	}
	return []string{"-4"}
}

// removeEmptyMount takes back the mount that iproute2 makes for its first
// namespace, unless others have namespaces there now.
func removeEmptyMount(path string) error {
	entries, err := os.ReadDir(path)
	if err := ignoreGone(err); err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	if len(entries) > 0 {
		return nil
	}
	if err := unmount(path); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := ignoreGone(os.Remove(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// unmountBelow unmounts what is mounted below a directory, the last first.
// Nodes mount in namespaces of their own, so there is nothing to find unless
// somebody entered one and shared its mounts.
func unmountBelow(dir string) error {
	paths, err := mountPoints()
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(paths) {
		if !strings.HasPrefix(path, dir+"/") {
			continue
		}
		if err := unmount(path); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

func mountPoints() ([]string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	var paths []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 {
			paths = append(paths, fields[1])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return paths, nil
}

// removeFiles empties the state directory, the ledger last. The logs stay, and
// so does the lock, which this program holds.
func (c *Cluster) removeFiles() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("list state directory: %w", err)
	}
	keep := []string{filepath.Base(c.logs()), filepath.Base(c.lockPath()), filepath.Base(c.ledgerPath())}
	for _, entry := range entries {
		if slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(c.join(entry.Name())); err != nil {
			return fmt.Errorf("remove files of the cluster: %w", err)
		}
	}
	if err := ignoreGone(os.Remove(c.ledgerPath())); err != nil {
		return fmt.Errorf("remove ledger: %w", err)
	}
	return nil
}
