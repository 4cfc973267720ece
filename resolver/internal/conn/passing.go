package conn

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Passing reports whether an error of a connected UDP socket is the fate of a single
// datagram, mostly an earlier one, of which ICMP has told: the socket is as good as
// before. See ip(7) and udp(7).
func Passing(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.EBADF, unix.ENOTSOCK, unix.ENOTCONN, unix.EDESTADDRREQ, unix.EFAULT, unix.EINVAL:
		return false
	}
	return errno != 0
}
