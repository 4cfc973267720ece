// Package sandbox runs a program in a network namespace of its own, in which addresses of Pods are
// local: an EndpointSlice takes none out of 127.0.0.0/8.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sandboxed is in the environment of the process that runs in the sandbox.
const sandboxed = "DORMOUSE_SANDBOXED"

// stopTime is how long the program has to end by itself.
const stopTime = time.Minute

// Network is what is local in a sandbox, besides 127.0.0.0/8.
const Network = "10.244.0.0/16"

// In reports whether this process is in a sandbox.
func In() bool { return os.Getenv(sandboxed) != "" }

// Run runs this program again in a sandbox, with some arguments and more in its environment, and
// gives the code to exit with. It needs root, or a kernel that lets users have namespaces. Once the
// context ends it tells the program to stop.
func Run(ctx context.Context, args []string, environment ...string) (int, error) {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(ctx, "/proc/self/exe", args...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(append(os.Environ(), sandboxed+"=yes"), environment...)
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = stopTime
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		child.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err := child.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, fmt.Errorf("run in a network namespace (as root, or where users may have namespaces): %w", err)
	}
	return 0, nil
}

// SetUp brings the loopback up and makes Network local.
func SetUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	up := func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }
	for _, step := range []struct {
		name    string
		request uint
		set     func(*unix.Ifreq) error
	}{
		{"lo", unix.SIOCSIFFLAGS, up},
		{"lo:0", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{10, 244, 0, 1}) }},
		{"lo:0", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 0, 0}) }},
	} {
		r, err := unix.NewIfreq(step.name)
		if err == nil {
			err = step.set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(socket, step.request, r)
		}
		if err != nil {
			return fmt.Errorf("give %s the network %s: %w", step.name, Network, err)
		}
	}
	return nil
}
