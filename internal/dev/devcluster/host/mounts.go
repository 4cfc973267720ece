package host

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RemoveNamespace removes a named network namespace that may be gone already.
func RemoveNamespace(name string) error {
	path := filepath.Join(NamespaceDir, name)
	if err := unmount(path); err != nil {
		return fmt.Errorf("unmount network namespace %s: %w", name, err)
	}
	if err := IgnoreGone(os.Remove(path)); err != nil {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	return nil
}

// RemoveEmptyMount takes back the mount that iproute2 makes for its first
// namespace, unless others have namespaces there now.
func RemoveEmptyMount(path string) error {
	entries, err := os.ReadDir(path)
	if err := IgnoreGone(err); err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	if len(entries) > 0 {
		return nil
	}
	if err := unmount(path); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := IgnoreGone(os.Remove(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// UnmountBelow unmounts what is mounted below a directory, the last first.
// Nodes mount in namespaces of their own, so there is nothing to find unless
// somebody entered one and shared its mounts.
func UnmountBelow(dir string) error {
	paths, err := MountPoints()
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

// MountPoints lists where something is mounted, in the order of mounting.
func MountPoints() ([]string, error) {
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
