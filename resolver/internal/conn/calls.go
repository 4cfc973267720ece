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

// readNow reads what there is.
func readNow(fd uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // the kernel writes there
	return int(n), errno
}

// sendNow sends as much as there is room for, to where the socket is connected to.
func sendNow(fd uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), //nolint:gosec // the kernel reads there
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}
