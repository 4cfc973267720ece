// Package node makes Node.js and packages of npm's available to tests which
// play against implementations that exist only there. A directory of the source
// that has a package.json and a package-lock.json says which packages; they are
// installed below bin/, never beside the source.
package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"dormouse.dev/dormouse/test/env"
)

// manifests are the files of a directory that say what to install.
var manifests = []string{"package.json", "package-lock.json"}

// Install installs what dir's package-lock.json pins and returns the
// node_modules directory that has it, for [Command]. Node.js and npm come from
// Debian where they are missing; the error wraps [env.ErrNotInstalled] where
// that takes rights that the caller has not. Packages' install scripts don't
// run and their optional dependencies are left out. What is installed already is
// left alone, and callers in other processes wait for each other.
func Install(ctx context.Context, dir string, progress io.Writer) (modules string, err error) {
	for name, program := range map[string]string{"nodejs": "node", "npm": "npm"} {
		if err := env.InstallDebian(ctx, name, program, progress); err != nil {
			return "", err
		}
	}
	root, err := env.RepoRoot()
	if err != nil {
		return "", err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", dir, err)
	}
	name, err := filepath.Rel(root, dir)
	if err != nil {
		return "", fmt.Errorf("name the packages of %s: %w", dir, err)
	}
	target := filepath.Join(root, "bin", "node", strings.ReplaceAll(name, string(filepath.Separator), "-"))
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for packages: %w", err)
	}
	unlock, err := env.Lock(filepath.Join(target, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	modules = filepath.Join(target, "node_modules")
	wanted, err := copyManifests(dir, target)
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(target, "installed")
	if installed, err := os.ReadFile(stamp); err == nil && string(installed) == wanted {
		return modules, nil
	}
	// What is there is half gone if this fails.
	if err := os.RemoveAll(stamp); err != nil {
		return "", fmt.Errorf("forget what was installed: %w", err)
	}
	fmt.Fprintln(progress, "installing the npm packages of", name)
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")
	cmd.Dir = target
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("run npm ci for %s: %w\n%s", name, err, bytes.TrimSpace(out))
	}
	if err := os.WriteFile(stamp, []byte(wanted), 0o644); err != nil {
		return "", fmt.Errorf("note what is installed: %w", err)
	}
	return modules, nil
}

// Command is a script of the source, run with the packages that [Install] gave.
// It is a CommonJS one: modules of the newer kind are looked for beside the
// script only.
func Command(ctx context.Context, modules, script string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	return cmd
}

// copyManifests puts dir's manifests where npm is to work, and returns a digest
// of them.
func copyManifests(dir, target string) (string, error) {
	digest := sha256.New()
	for _, name := range manifests {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("read what to install: %w", err)
		}
		digest.Write(content)
		if err := os.WriteFile(filepath.Join(target, name), content, 0o644); err != nil {
			return "", fmt.Errorf("write what to install: %w", err)
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
