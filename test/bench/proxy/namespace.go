package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/test/env"
)

// inNamespace is set for a process that runs in a network namespace of the
// benchmark's own.
const inNamespace = "DORMOUSE_BENCH_NAMESPACE"

// joinNamespace installs the other proxies and, where this process may, runs it
// once more in a network namespace of its own, where no other program's ports, no
// firewall and no connection tracking is in the way. Entered says that this was done
// and all is over. Elsewhere the machine's own loopback has to do.
func joinNamespace(ctx context.Context) (joined bool, err error) {
	if os.Getenv(inNamespace) != "" {
		return false, prepareNamespace()
	}
	for _, p := range []struct{ name, program string }{
		{"haproxy", haproxyProgram}, {"nginx-light", nginxProgram}, {"libnginx-mod-stream", nginxModule},
	} {
		if _, err := os.Stat(p.program); err == nil {
			continue
		}
		if err := env.InstallDebian(ctx, p.name, p.program, os.Stderr); err != nil {
			return false, err
		}
	}
	if os.Geteuid() != 0 {
		say("not root: measuring on the machine's own loopback, with whatever firewall it has")
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * stopTime
	var failed *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &failed):
		return true, errors.New("the run in a network namespace failed")
	case err != nil:
		return true, fmt.Errorf("run in a network namespace: %w", err)
	}
	return true, nil
}

// prepareNamespace brings loopback up.
func prepareNamespace() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("name loopback: %w", err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	// More ports for the many short connections, which leave theirs unused for a while.
	path := filepath.Join("/proc/sys/net/ipv4", "ip_local_port_range")
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d 65535", firstEphemeral), 0o644); err != nil {
		return fmt.Errorf("widen the range of ports: %w", err)
	}
	return nil
}

// until asks a hundred times a second whether something is so.
func until(ctx context.Context, within time.Duration, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
