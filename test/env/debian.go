package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// ErrNotInstalled means that a program is missing and can't be installed by who
// asks: installing takes root on a Debian machine. Tests that can do without
// the program skip themselves on it.
var ErrNotInstalled = errors.New("not installed")

// aptLock is held while packages are installed. apt-get's own lock is on the
// lists too, and there it fails instead of waiting.
const aptLock = "/run/dormouse-apt.lock"

// InstallDebian installs a package of Debian's where its program, a path or a
// name to look up, is missing. Several may ask at once: the tests of several
// packages run side by side.
func InstallDebian(ctx context.Context, name, program string, progress io.Writer) error {
	if _, err := exec.LookPath(program); err == nil {
		// It may be there while the rest of its package isn't yet.
		if unlock, err := Lock(aptLock); err == nil {
			unlock()
		}
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("find %s: %w; installing Debian's package %s takes root and apt-get", program, ErrNotInstalled, name)
	}
	unlock, err := Lock(aptLock)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	fmt.Fprintln(progress, "installing", name)
	for _, args := range [][]string{{"update"}, {"install", "--yes", "--no-install-recommends", name}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run apt-get %s for %s: %w\n%s", args[0], name, err, out)
		}
	}
	return nil
}

// Lock waits until no other process holds the lock that a file stands for. The
// kernel lets go of it when its holder ends, however that happens.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
