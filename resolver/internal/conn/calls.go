package conn

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the packet path don't block: sockets that have nothing, or no room,
// say so. So they are made without the scheduler's leave. With it, it takes a thread
// that loses its processor to other programs during a call for a blocked one and
// wakes another in its place, which costs more than the call where the processors
// are busy, exactly when it matters.

// RecvNow reads what there is of a socket.
func RecvNow(fd int, b []byte) (int, unix.Errno) {
	for {
		n, errno := readNow(uintptr(fd), b)
		if errno != unix.EINTR {
			return n, errno
		}
	}
}

// SendNow sends as much as there is room for, to where the socket is connected to.
func SendNow(fd int, b []byte) (int, unix.Errno) {
	for {
		n, errno := sendNow(uintptr(fd), b)
		if errno != unix.EINTR {
			return n, errno
		}
	}
}

func readNow(fd uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes there
	return int(n), errno
}

func sendNow(fd uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), //nolint:gosec // the kernel reads there
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// readable says that there is something to read, if only the end.
func readable(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&one)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes there
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}

// roomTime is how long a datagram waits for room in a socket's buffer, before it is
// lost as it would be on a line that is full.
const roomTime = time.Millisecond

// SendDatagramNow sends a datagram to where the socket is connected to.
func SendDatagramNow(fd int, b []byte) unix.Errno {
	_, errno := SendNow(fd, b)
	if errno != unix.EAGAIN {
		return errno
	}
	return withRoom(fd, func() unix.Errno {
		_, errno := SendNow(fd, b)
		return errno
	})
}

// withRoom sends, and once more after a moment where there is no room.
func withRoom(fd int, send func() unix.Errno) unix.Errno {
	for tries := 0; ; tries++ {
		errno := send()
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && tries == 0:
			room := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a file's number
			_, _ = unix.Poll(room, int(roomTime.Milliseconds()))
		default:
			return errno
		}
	}
}
