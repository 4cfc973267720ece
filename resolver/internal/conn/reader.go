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
	// stream says that nothing read means the end; else it is an empty datagram.
	stream bool
	limit  int
	buf    *[]byte
	n      int
	err    error
	// attempt is the method value, made once so that reading allocates nothing.
	attempt func(fd uintptr) bool
}

// NewReader makes a reader of a TCP connection.
func NewReader(c *net.TCPConn) (*Reader, error) { return newReader(c, Streams, true) }

// NewDatagramReader makes a reader of a connected UDP socket.
func NewDatagramReader(c *net.UDPConn) (*Reader, error) { return newReader(c, Datagrams, false) }

func newReader(c syscall.Conn, pool *Pool, stream bool) (*Reader, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	r := &Reader{raw: raw, pool: pool, stream: stream}
	r.attempt = r.read
	return r, nil
}

// Next waits for bytes, at most limit of them, and lends them until Done. The
// error is io.EOF at the end of the stream, os.ErrDeadlineExceeded at the read
// deadline.
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

// Done gives the buffer of the last Next back.
func (r *Reader) Done() {
	if r.buf != nil {
		r.pool.Put(r.buf)
		r.buf = nil
	}
}

// WaitGone waits, without reading, until the peer has reset the connection or
// keep-alive has found it gone. The error is os.ErrDeadlineExceeded at the read
// deadline. It is for a client of which nothing more can, or may, be read.
func (r *Reader) WaitGone() error {
	return r.raw.Read(func(fd uintptr) bool {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err != nil || info.State == tcpClosed
	})
}

// tcpClosed is TCP_CLOSE of linux/tcp_states.h.
const tcpClosed = 7

// read tries once; false: wait until there is something.
func (r *Reader) read(fd uintptr) bool {
	if r.buf == nil {
		r.buf = r.pool.Get()
	}
	for {
		r.n, r.err = unix.Read(int(fd), (*r.buf)[:min(r.limit, len(*r.buf))])
		switch {
		case errors.Is(r.err, unix.EINTR):
			continue
		case errors.Is(r.err, unix.EAGAIN):
			r.Done()
			return false
		case r.err != nil:
			r.n = 0
			r.err = os.NewSyscallError("read", r.err)
		}
		return true
	}
}
