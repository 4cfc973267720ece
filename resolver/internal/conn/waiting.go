package conn

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Waiting says whether there is something to read on a socket, if only its end.
func Waiting(c syscall.Conn) (waiting bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, failed := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waiting = !errors.Is(failed, unix.EAGAIN)
	})
	return waiting || err != nil
}
