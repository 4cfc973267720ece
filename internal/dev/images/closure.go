package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Closure collects what a program of this machine needs to run in an image of
// its own: the program, every shared library that the loader would give it,
// and the given files and directories whole. Symbolic links on the way are
// kept as links, and what they point at is collected too.
//
// Libraries that the program only loads by name while it runs aren't seen:
// give their paths as extra ones.
func Closure(ctx context.Context, program string, extra ...string) (map[string]File, error) {
	c := collector{}
	libraries, err := sharedLibraries(ctx, program)
	if err != nil {
		return nil, err
	}
	paths := append([]string{program}, libraries...)
	for _, path := range append(paths, extra...) {
		if err := c.add(path); err != nil {
			return nil, fmt.Errorf("collect files of %s: %w", program, err)
		}
	}
	return c, nil
}

// Base has what even a static program may look for: a place for temporary
// files and the names of root and of user 65532.
func Base() map[string]File {
	return map[string]File{
		"/tmp":        Dir(fs.ModeSticky | 0o777),
		"/etc/passwd": Bytes([]byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"), 0o644),
		"/etc/group":  Bytes([]byte("root:x:0:\nnonroot:x:65532:\n"), 0o644),
	}
}

// sharedLibraries asks the loader, which alone knows its search path.
func sharedLibraries(ctx context.Context, program string) ([]string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, "ldd", program)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if strings.Contains(string(out)+stderr.String(), "not a dynamic executable") {
			return nil, nil
		}
		return nil, fmt.Errorf("list shared libraries of %s: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	return parseLDD(string(out))
}

// parseLDD reads lines of the forms "name => /path (address)" and
// "/path (address)"; the kernel's own library has no path.
func parseLDD(out string) ([]string, error) {
	var paths []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("resolve shared library: %s", strings.TrimSpace(line))
		}
		if _, right, ok := strings.Cut(line, "=>"); ok {
			line = right
		}
		if path, _, _ := strings.Cut(strings.TrimSpace(line), " "); filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// collector gathers files of this machine at the paths they have there.
type collector map[string]File

// add collects path and everything below it. Each of its parents is looked at
// first, because any of them may be a link: /lib is one to /usr/lib.
func (c collector) add(path string) error {
	path = filepath.Clean(path)
	if _, seen := c[path]; seen {
		return nil
	}
	if parent := filepath.Dir(path); parent != "/" {
		real, err := filepath.EvalSymlinks(parent)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", parent, err)
		}
		if real != parent {
			if err := c.addLinks(parent); err != nil {
				return err
			}
			return c.add(filepath.Join(real, filepath.Base(path)))
		}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return c.addLink(path)
	case info.IsDir():
		return c.addDir(path, info.Mode())
	case info.Mode().IsRegular():
		c[path] = FromHost(path)
	}
	return nil
}

func (c collector) addDir(path string, mode fs.FileMode) error {
	c[path] = Dir(mode)
	children, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	for _, child := range children {
		if err := c.add(filepath.Join(path, child.Name())); err != nil {
			return err
		}
	}
	return nil
}

// addLink collects a link and what it points at. A dangling link stays one:
// packages have them, to optional parts.
func (c collector) addLink(path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("read link %s: %w", path, err)
	}
	c[path] = Link(target)
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(path), target)
	}
	if err := c.add(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// addLinks collects the links among path and its parents, without what is in
// the directories that they point at.
func (c collector) addLinks(path string) error {
	for ; path != "/"; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("read link %s: %w", path, err)
		}
		c[path] = Link(target)
	}
	return nil
}
