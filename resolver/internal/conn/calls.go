package conn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the packet path don't block: the kernel returns at once where there is nothing
// to read, or no room. So they are made without telling the scheduler. A thread that loses its
// processor to another program during a call that the scheduler knows of counts as blocked, and
// another thread is woken in its place. That costs more than the call when the processors are
// busy, which is exactly when it matters.

// RecvNow reads what a socket has received.
func RecvNow(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes there
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// SendNow sends as much as there is room for, to where the socket is connected to.
func SendNow(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), //nolint:gosec // the kernel reads there
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// PeekNow is RecvNow, but leaves the bytes in the socket.
func PeekNow(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0) //nolint:gosec // the kernel writes there
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// SkipNow discards the first n bytes of a TCP socket, which PeekNow has read. They are not
// copied.
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

// discardNow is RecvNow, but discards what it reads, up to n bytes.
func discardNow(fd uintptr, n int) (int, unix.Errno) {
	took, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, 0, uintptr(n), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	return int(took), errno
}

// Unheard reports whether a TCP socket's peer has not yet acknowledged all that was sent.
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

// TakeError takes the pending error off a socket; 0: there is none.
func TakeError(fd int) unix.Errno {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return 0
	}
	return unix.Errno(n)
}

// Readable reports whether there is something to read, including the end of the stream.
func Readable(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&one)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes there
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
}
