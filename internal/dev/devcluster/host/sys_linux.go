package host

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// detached is for a process in a session of its own, born in a cgroup.
func detached(group *os.File) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(group.Fd())}
}

// keepFiles keeps what this program was given open, such as a lock that its
// caller holds, from being given on to processes that outlive it.
func keepFiles() error {
	return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// joinNetwork moves the calling thread into a network namespace.
func joinNetwork(namespace *os.File) error {
	return unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
}

// unmount takes a mount away, from under its users too. What is no mount, or
// not there, is not an error: its making may have been cut short.
func unmount(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
