package conn

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func socketAddress(of netip.AddrPort) unix.Sockaddr {
	if of.Addr().Unmap().Is4() {
		return &unix.SockaddrInet4{Port: int(of.Port()), Addr: of.Addr().Unmap().As4()}
	}
	address := &unix.SockaddrInet6{Port: int(of.Port()), Addr: of.Addr().As16()}
	if zone := of.Addr().Zone(); zone != "" {
		address.ZoneId = zoneNumber(zone)
	}
	return address
}

// Connect begins to connect to a backend, by a socket that Prepare has prepared. Pending means
// that the socket is still connecting: it becomes writable when it is connected or has failed,
// and Connected returns which.
func Connect(to netip.AddrPort) (fd int, pending bool, err error) {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, os.NewSyscallError("socket", err)
	}
	if err = Prepare(fd); err == nil {
		err = connect(fd, to)
	}
	// The socket is connected where the backend is on the same node, though the first call
	// returns EINPROGRESS.
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

// settled reports whether the socket has connected or failed.
func settled(fd int) bool {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a file's number
	n, err := unix.Poll(polled, 0)
	return err == nil && n > 0
}

// Connected returns the error with which connecting failed; nil: it is connected.
func Connected(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return os.NewSyscallError("connect", err)
}

// zoneNumber is the index of a network interface, given its name or the number itself; 0: there
// is no such interface.
func zoneNumber(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if link, err := net.InterfaceByName(zone); err == nil {
		return uint32(link.Index) //nolint:gosec // a link's number
	}
	return 0
}
