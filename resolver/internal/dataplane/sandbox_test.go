package dataplane

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sandboxEnv is in the environment of a test that runs in its sandbox.
const sandboxEnv = "DORMOUSE_TEST_SANDBOX"

// sandboxed runs the test again by itself in a network namespace of its own, where it
// may do what takes rights and what others would notice, and reports whether this is
// it. Settings are files of /proc/sys and what to write there. It needs root, or a
// kernel that lets users have namespaces.
func sandboxed(t *testing.T, settings map[string]string) bool {
	t.Helper()
	if os.Getenv(sandboxEnv) != "" {
		loopbackUp(t)
		for file, value := range settings {
			if err := os.WriteFile("/proc/sys/"+file, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		return true
	}
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), sandboxEnv+"=yes")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		child.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	output, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("in a network namespace of its own (that takes root, or a kernel that lets users have namespaces): %v", err)
	}
	t.Logf("%s", output)
	return false
}

func loopbackUp(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(socket) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}
