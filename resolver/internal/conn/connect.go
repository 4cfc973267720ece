package conn

import (
	"errors"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ConnectNow is a net.Dialer's Control that connects already. A server on the same
// node is connected to when it returns, and the dialer sees that without waiting for
// it, which costs more than all else of a connection.
func ConnectNow(to netip.AddrPort) func(network, address string, raw syscall.RawConn) error {
	if to.Addr().Zone() != "" {
		return nil // the dialer knows the zones' numbers
	}
	return func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.Connect(int(fd), socketAddress(to))
		})
		if errors.Is(failed, unix.EINPROGRESS) || errors.Is(failed, unix.EINTR) {
			failed = nil
		}
		return errors.Join(err, os.NewSyscallError("connect", failed))
	}
}

func socketAddress(of netip.AddrPort) unix.Sockaddr {
	if of.Addr().Unmap().Is4() {
		return &unix.SockaddrInet4{Port: int(of.Port()), Addr: of.Addr().Unmap().As4()}
	}
	return &unix.SockaddrInet6{Port: int(of.Port()), Addr: of.Addr().As16()}
}

// Connect begins to connect to a server. Pending says that it isn't done yet: the
// socket can be written to when it is, or has failed, which Connected tells.
func Connect(to netip.AddrPort, prepare func(fd int) error) (fd int, pending bool, err error) {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, os.NewSyscallError("socket", err)
	}
	if err = prepare(fd); err == nil {
		err = connect(fd, to)
	}
	// It is done where the server is on the same node, though the first call says that
	// it isn't.
	if errors.Is(err, unix.EINPROGRESS) {
		err = connect(fd, to)
	}
	switch {
	case err == nil || errors.Is(err, unix.EISCONN):
		return fd, false, nil
	case errors.Is(err, unix.EALREADY) || errors.Is(err, unix.EINTR):
		return fd, true, nil
	}
	_ = unix.Close(fd)
	return -1, false, os.NewSyscallError("connect", err)
}

func connect(fd int, to netip.AddrPort) error { return unix.Connect(fd, socketAddress(to)) }

// Connected tells what came of connecting.
func Connected(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return os.NewSyscallError("connect", err)
}
