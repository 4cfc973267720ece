package conn

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Writer writes to a connection, and allocates nothing. It is for one goroutine.
type Writer struct {
	raw  syscall.RawConn
	left []byte
	err  error
	// attempt is the method value, made once.
	attempt func(fd uintptr) bool
}

// NewWriter makes a writer of a socket that is connected.
func NewWriter(c syscall.Conn) (*Writer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	w := &Writer{raw: raw}
	w.attempt = w.write
	return w, nil
}

// Write writes all of b, a datagram at once, and waits for room where there is none. On an
// error n is how much was written.
func (w *Writer) Write(b []byte) (n int, err error) {
	w.left, w.err = b, nil
	err = w.raw.Write(w.attempt)
	if err == nil {
		err = w.err
	}
	n = len(b) - len(w.left)
	w.left = nil
	return n, err
}

// WriteNow is Write, but doesn't wait for room.
func (w *Writer) WriteNow(b []byte) error {
	var errno unix.Errno
	err := w.raw.Control(func(fd uintptr) { _, errno = SendNow(int(fd), b) })
	if err == nil && errno != 0 {
		err = os.NewSyscallError("sendto", errno)
	}
	return err //nolint:wrapcheck // it says what it is of
}

// write tries once; false: wait until there is room.
func (w *Writer) write(fd uintptr) bool {
	for {
		n, errno := SendNow(int(fd), w.left)
		switch errno {
		case 0:
			w.left = w.left[n:]
			if len(w.left) == 0 {
				return true
			}
		case unix.EAGAIN:
			return false
		default:
			w.err = os.NewSyscallError("sendto", errno)
			return true
		}
	}
}
