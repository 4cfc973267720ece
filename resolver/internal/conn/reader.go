package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reader reads a connection with buffers that are borrowed once there is
// something to read: a connection on which nothing happens holds none. It is
// for one goroutine.
type Reader struct {
	raw  syscall.RawConn
	pool *Pool
	// stream is set where reading nothing means the end; else it is an empty datagram.
	stream bool
	// budget, if there is one, is charged with what is read.
	budget *Budget
	limit  int
	buf    *[]byte
	n      int
	err    error
	// attempt is the method value, made once so that reading allocates nothing.
	attempt func(fd uintptr) bool
}

// ErrNoRoom means that there is something to read, and no budget to keep it.
var ErrNoRoom = errors.New("no room for more bytes")

// NewReader makes a reader of a TCP connection. A budget is charged, as by Charge; nil: none is.
func NewReader(s *Stream, budget *Budget) *Reader {
	r := &Reader{raw: (*rawStream)(s), pool: Streams, stream: true, budget: budget}
	r.attempt = r.read
	return r
}

// NewDatagramReader makes a reader of a connected UDP socket.
func NewDatagramReader(c *net.UDPConn) (*Reader, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	r := &Reader{raw: raw, pool: Datagrams}
	r.attempt = r.read
	return r, nil
}

// Charge makes reads take what they read from a budget; the caller gives it back. Where nothing
// is left Next reads nothing and its error is ErrNoRoom. The bytes stay in the kernel, which
// slows the peer down.
func (r *Reader) Charge(b *Budget) { r.budget = b }

// Next waits for bytes, at most limit of them, and lends them until Done. The error is io.EOF
// at the end of the stream, and os.ErrDeadlineExceeded at the read deadline.
func (r *Reader) Next(limit int) ([]byte, error) {
	r.limit, r.n, r.err = limit, 0, nil
	err := r.raw.Read(r.attempt)
	if err == nil {
		err = r.err
	}
	if err == nil && r.n == 0 && r.stream {
		err = io.EOF
	}
	if err != nil {
		r.Done()
		return nil, err
	}
	return (*r.buf)[:r.n], nil
}

// NextNow is Next for bytes that have arrived already, also after the read deadline. Its error
// is os.ErrDeadlineExceeded where none have.
func (r *Reader) NextNow(limit int) ([]byte, error) {
	r.limit, r.n, r.err = limit, 0, nil
	came := false
	err := r.raw.Control(func(fd uintptr) { came = r.read(fd) })
	switch {
	case err != nil:
	case !came:
		err = os.ErrDeadlineExceeded
	case r.err != nil:
		err = r.err
	case r.n == 0 && r.stream:
		err = io.EOF
	}
	if err != nil {
		r.Done()
		return nil, err
	}
	return (*r.buf)[:r.n], nil
}

// Done gives the buffer of the last Next back.
func (r *Reader) Done() {
	if r.buf != nil {
		r.pool.Put(r.buf)
		r.buf = nil
	}
}

// read tries once; false: wait until there is something.
func (r *Reader) read(fd uintptr) bool {
	r.n, r.err = 0, nil
	if r.buf == nil {
		r.buf = r.pool.Get()
	}
	room := min(r.limit, len(*r.buf))
	if r.budget != nil {
		if room = r.budget.Some(room); room == 0 {
			return r.peek(fd)
		}
		defer func() { r.budget.Give(room - r.n) }()
	}
	n, errno := RecvNow(int(fd), (*r.buf)[:room])
	switch errno {
	case 0:
		r.n = n
	case unix.EAGAIN:
		r.Done()
		return false
	default:
		r.err = os.NewSyscallError("read", errno)
	}
	return true
}

// peek is read without room for the bytes: they stay in the socket, but the end of the stream
// counts.
func (r *Reader) peek(fd uintptr) bool {
	for {
		n, _, err := unix.Recvfrom(int(fd), (*r.buf)[:1], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		r.n, r.err = 0, nil
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			r.Done()
			return false
		case err != nil:
			r.err = os.NewSyscallError("recvfrom", err)
		case n > 0:
			r.err = ErrNoRoom
		}
		return true
	}
}
