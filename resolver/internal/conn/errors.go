package conn

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Passing reports whether an error of a connected UDP socket concerns a single datagram, mostly
// an earlier one for which an ICMP error came back. The socket stays usable. See ip(7) and
// udp(7).
func Passing(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.EBADF, unix.ENOTSOCK, unix.ENOTCONN, unix.EDESTADDRREQ, unix.EFAULT, unix.EINVAL, unix.EAGAIN, unix.EINTR:
		return false
	}
	return errno != 0
}

// Unreachable reports whether the network reported that there is no way to the address that a
// socket is connected to.
func Unreachable(err error) bool {
	return errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTDOWN) || errors.Is(err, unix.EACCES)
}
