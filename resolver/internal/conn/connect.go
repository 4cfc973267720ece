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

// Connect begins to connect to a backend, by a socket that Prepare has prepared. Pending
// says that it isn't done yet: the socket can be written to when it is, or has failed,
// which Connected tells.
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

// settled reports whether it is known what came of connecting.
func settled(fd int) bool {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a file's number
	n, err := unix.Poll(polled, 0)
	return err == nil && n > 0
}

// Connected tells what came of connecting.
func Connected(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return os.NewSyscallError("connect", err)
}

// zoneNumber is the number of a network interface, by its name or as a number; 0: there is
// none.
func zoneNumber(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if link, err := net.InterfaceByName(zone); err == nil {
		return uint32(link.Index) //nolint:gosec // a link's number
	}
	return 0
}
