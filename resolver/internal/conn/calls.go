package conn

import (
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

// PeekNow is RecvNow, but leaves what it reads with the socket.
func PeekNow(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0) //nolint:gosec // the kernel writes there
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// SkipNow takes away the first n bytes of a TCP socket that PeekNow has read. They
// are not copied.
func SkipNow(fd, n int) {
	for n > 0 {
		took, errno := discardNow(uintptr(fd), n)
		switch {
		case errno == unix.EINTR:
		case errno != 0 || took == 0:
			return
		default:
			n -= took
		}
	}
}

// discardNow is RecvNow, but throws away what it reads, up to n bytes.
func discardNow(fd uintptr, n int) (int, unix.Errno) {
	took, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, 0, uintptr(n), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	return int(took), errno
}

// Readable reports whether there is something to read, if only the end.
func Readable(fd int) bool { return readable(uintptr(fd)) }

// Unheard reports whether a TCP socket's other side has not yet taken in all that it was
// sent.
func Unheard(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	return err == nil && n > 0
}

// Closed reports whether a TCP socket has no connection any more.
func Closed(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == tcpClose
}

// tcpClose is the state of such a socket, and tcpCloseWait of one whose peer has ended its
// side, in the kernel's include/net/tcp_states.h.
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// TakeError takes the error off a socket; 0: it has none.
func TakeError(fd int) unix.Errno {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return 0
	}
	return unix.Errno(n)
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

// readable reports whether there is something to read, if only the end.
func readable(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&one)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes there
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}
