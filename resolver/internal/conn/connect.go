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
