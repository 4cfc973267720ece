package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// sandboxed is in the environment of the process that runs in the sandbox.
const sandboxed = "DORMOUSE_TEST_SANDBOXED"

// The pods of these tests, resolvers and game servers, have addresses out of
// podNetwork. An EndpointSlice takes none out of 127.0.0.0/8, hence the sandbox.
const (
	podNetwork = "10.244.0.0"
	podMask    = "255.255.0.0"
)

// atOnce is how many tests run at once unless a flag says otherwise: they wait
// for the operator's clocks nearly all the time, not for a processor.
const atOnce = "32"

// runSandboxed runs this program again in a network namespace of its own, in
// which every address of the pods is local, and gives the code to exit with. It
// needs root, or a kernel that lets users have namespaces.
func runSandboxed(ctx context.Context, environment ...string) (int, error) {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-test.parallel=" + atOnce}, os.Args[1:]...)...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(append(os.Environ(), sandboxed+"=yes"), environment...)
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
		return 1, fmt.Errorf("run the tests in a network namespace of their own (run them as root, or let users have namespaces): %w", err)
	}
	return 0, nil
}

// setUpSandbox brings the loopback up and makes podNetwork local.
func setUpSandbox() error {
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
			return fmt.Errorf("give %s the network %s/%s: %w", step.name, podNetwork, podMask, err)
		}
	}
	return nil
}
