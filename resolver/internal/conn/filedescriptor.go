package conn

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a socket of the net package.
type Socket interface {
	syscall.Conn
	Close() error
}

// Take takes a socket away from the net package, and from the runtime's poller, which would be
// woken by whatever arrives. It doesn't block. The caller closes it.
func Take(c Socket) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("reaching the socket: %w", err)
	}
	var failed error
	err = raw.Control(func(was uintptr) {
		fd, failed = unix.FcntlInt(was, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = os.NewSyscallError("fcntl", failed)
	}
	if err != nil {
		return -1, fmt.Errorf("taking the socket: %w", err)
	}
	return fd, c.Close()
}
