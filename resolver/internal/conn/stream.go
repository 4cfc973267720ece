package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/loop"
)

// Stream is a TCP connection that one goroutine reads and writes, while a loop waits for its
// socket. The socket stays the same from accept, or connect, to the relay: Detach hands
// it on.
//
// All methods are for that goroutine, but for Cut and the deadlines, which are for any.
type Stream struct {
	file loop.File
	// changed has a token once the socket may be ready, a deadline has changed or passed, or
	// the Stream is cut.
	changed chan struct{}

	mu          sync.Mutex
	read, write deadline
	// cut is set by Cut, and over once the socket is closed or detached.
	cut, over bool
}

// deadline is when waiting in one direction fails; zero: never.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// NewStream makes a Stream of a connected TCP socket that does not block. On an error it
// closes the socket.
func NewStream(on *loop.Loop, fd int) (*Stream, error) {
	s := &Stream{changed: make(chan struct{}, 1)}
	err := s.file.Open(on, fd, s)
	if err == nil {
		err = s.file.Want(loop.In | loop.Edge)
	}
	if err != nil {
		s.file.Close()
		return nil, fmt.Errorf("wait for a connection: %w", err)
	}
	return s, nil
}

// Dial connects to a backend. The error reports a timeout, as a net.Error does, where the
// backend did not answer in time; it is the context's where that ended before.
func Dial(ctx context.Context, to netip.AddrPort, timeout time.Duration) (*Stream, error) {
	fd, pending, err := Connect(to)
	if err != nil {
		return nil, fmt.Errorf("dial backend %s: %w", to, err)
	}
	s, err := NewStream(loop.Next(), fd)
	if err != nil {
		return nil, fmt.Errorf("dial backend %s: %w", to, err)
	}
	if !pending {
		return s, nil
	}
	if err := s.awaitConnected(ctx, timeout); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("dial backend %s: %w", to, err)
	}
	return s, nil
}

// Connect begins to connect to a backend, by a socket that Prepare has prepared. Pending means
// that the socket is still connecting: it becomes writable when it is connected or has failed,
// and Connected returns which.
func Connect(to netip.AddrPort) (fd int, pending bool, err error) {
	family := unix.AF_INET6
	if to.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, os.NewSyscallError("socket", err)
	}
	address := socketAddress(to)
	if err = Prepare(fd); err == nil {
		err = unix.Connect(fd, address)
	}
	// The socket is connected where the backend is on the same node, though the first call
	// returns EINPROGRESS.
	if errors.Is(err, unix.EINPROGRESS) {
		err = unix.Connect(fd, address)
	}
	switch {
	case err == nil || errors.Is(err, unix.EISCONN):
		return fd, false, nil
	case errors.Is(err, unix.EALREADY) || errors.Is(err, unix.EINTR):
		return fd, true, nil
	}
	_ = unix.Close(fd)
	return -1, false, os.NewSyscallError("connect", err)
}

// settled reports whether the socket has connected or failed.
func settled(fd int) bool {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a file's number
	n, err := unix.Poll(polled, 0)
	return err == nil && n > 0
}

// Connected returns the error with which connecting failed; nil: it is connected.
func Connected(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return os.NewSyscallError("connect", err)
}

// awaitConnected waits until the socket is connected, or can't be.
func (s *Stream) awaitConnected(ctx context.Context, timeout time.Duration) error {
	_ = s.SetWriteDeadline(time.Now().Add(timeout))
	stop := context.AfterFunc(ctx, s.Cut)
	var failed error
	err := s.until(&s.write, nil, func(fd uintptr) bool {
		if !settled(int(fd)) {
			return false
		}
		failed = Connected(int(fd))
		return true
	})
	if !stop() && ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
	if err == nil {
		err = failed
	}
	if err == nil {
		err = s.SetWriteDeadline(time.Time{})
	}
	return err
}

// Ready implements loop.Handler.
func (s *Stream) Ready(*loop.Loop, uint32) { s.wake() }

// wake makes the goroutine that waits try again.
func (s *Stream) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// ErrInterrupted means that something else than the connection ended a wait.
var ErrInterrupted = errors.New("the wait was interrupted")

// until calls attempt until it returns true, and waits before each further try until the socket
// may be ready. The error is os.ErrDeadlineExceeded once the deadline has passed, net.ErrClosed
// once the Stream is cut, and ErrInterrupted if interrupt, which may be nil, is closed first.
func (s *Stream) until(d *deadline, interrupt <-chan struct{}, attempt func(fd uintptr) bool) error {
	for {
		s.mu.Lock()
		ended, late := s.cut || s.over, !d.at.IsZero() && !time.Now().Before(d.at)
		s.mu.Unlock()
		switch {
		case ended:
			return net.ErrClosed
		case late:
			return os.ErrDeadlineExceeded
		case attempt(uintptr(s.file.FD)):
			return nil
		}
		if d == &s.write {
			// Not before: a new socket has room, and would wake for nothing.
			if err := s.file.Want(loop.In | loop.Out | loop.Edge); err != nil {
				return fmt.Errorf("wait for room: %w", err)
			}
		}
		select {
		case <-s.changed:
		case <-interrupt:
			return ErrInterrupted
		}
	}
}

// WaitReadable waits until there is something to read, including the end of the stream, with
// until's errors. It hardly uses the stack, so that a goroutine that did nothing before keeps the
// smallest stack while it waits.
func (s *Stream) WaitReadable(interrupt <-chan struct{}) error {
	return s.until(&s.read, interrupt, Readable)
}

// WaitGone waits, without reading, until the peer has reset the connection or keep-alive has
// detected that it is gone, or, with orEnded, the peer has ended its side, with until's errors.
// It is for a client of which nothing more can, or may, be read.
func (s *Stream) WaitGone(orEnded bool, interrupt <-chan struct{}) error {
	return s.until(&s.read, interrupt, func(fd uintptr) bool {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err != nil || info.State == tcpClose || orEnded && info.State == tcpCloseWait
	})
}

// SetReadDeadline makes reads fail from a time on; zero: never. It ends a read that waits, too.
func (s *Stream) SetReadDeadline(at time.Time) error { return s.setDeadline(at, &s.read) }

// SetWriteDeadline is SetReadDeadline for writes.
func (s *Stream) SetWriteDeadline(at time.Time) error { return s.setDeadline(at, &s.write) }

// SetDeadline sets both.
func (s *Stream) SetDeadline(at time.Time) error { return s.setDeadline(at, &s.read, &s.write) }

func (s *Stream) setDeadline(at time.Time, of ...*deadline) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return net.ErrClosed
	}
	for _, d := range of {
		d.at = at
		switch {
		case at.IsZero() && d.timer == nil:
		case at.IsZero():
			d.timer.Stop()
		case d.timer == nil:
			d.timer = time.AfterFunc(time.Until(at), s.wake)
		default:
			d.timer.Reset(time.Until(at))
		}
	}
	return nil
}

// Write implements io.Writer: it waits for room until all of b is written.
func (s *Stream) Write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	var failed error
	err = s.until(&s.write, nil, func(fd uintptr) bool {
		for {
			sent, errno := SendNow(int(fd), b[n:])
			switch errno {
			case 0:
				if n += sent; n == len(b) {
					return true
				}
			case unix.EAGAIN:
				return false
			default:
				failed = os.NewSyscallError("sendto", errno)
				return true
			}
		}
	})
	if err == nil {
		err = failed
	}
	return n, err
}

// Discard reads and discards up to n bytes, until the stream ends or fails.
func (s *Stream) Discard(n int) {
	_ = s.until(&s.read, nil, func(fd uintptr) bool {
		for n > 0 {
			got, errno := discardNow(fd, n)
			switch {
			case errno == unix.EINTR:
			case errno == unix.EAGAIN:
				return false
			case errno != 0 || got == 0:
				return true
			default:
				n -= got
			}
		}
		return true
	})
}

// CloseWrite ends this side of the connection: the peer reads what was written, and then the
// end.
func (s *Stream) CloseWrite() error {
	return os.NewSyscallError("shutdown", unix.Shutdown(s.file.FD, unix.SHUT_WR))
}

// Watch sets keep-alive: the connection fails once its peer is gone, or has acknowledged
// nothing, for as long as k allows.
func (s *Stream) Watch(k KeepAlive) error {
	return set(s.file.FD, k.options())
}

// Addresses are the peer's and the connection's own. One that isn't known any more is invalid.
func (s *Stream) Addresses() (peer, own netip.AddrPort) {
	if at, err := unix.Getpeername(s.file.FD); err == nil {
		peer = AddressOf(at)
	}
	if at, err := unix.Getsockname(s.file.FD); err == nil {
		own = AddressOf(at)
	}
	return peer, own
}

// Cut ends the connection: reads and writes fail from now on. The goroutine that owns the
// Stream still closes it.
func (s *Stream) Cut() {
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	s.wake()
}

// Detach takes the socket away from the Stream, which ends, and returns it open.
func (s *Stream) Detach() (fd int) {
	s.end()
	s.file.Leave()
	return s.file.FD
}

// Close implements io.Closer. It does nothing after Close or Detach.
func (s *Stream) Close() error {
	if !s.end() {
		s.file.Close()
	}
	return nil
}

// end ends the Stream, and reports whether it had ended before.
func (s *Stream) end() (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.over
	s.over = true
	for _, d := range [...]*deadline{&s.read, &s.write} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
	return before
}

// rawStream is a Stream as a Reader reads it.
type rawStream Stream

var _ syscall.RawConn = (*rawStream)(nil)

// Control implements syscall.RawConn.
func (r *rawStream) Control(f func(fd uintptr)) error {
	f(uintptr(r.file.FD))
	return nil
}

// Read implements syscall.RawConn.
func (r *rawStream) Read(f func(fd uintptr) bool) error {
	s := (*Stream)(r)
	return s.until(&s.read, nil, f)
}

// Write implements syscall.RawConn.
func (r *rawStream) Write(f func(fd uintptr) bool) error {
	s := (*Stream)(r)
	return s.until(&s.write, nil, f)
}

var _ io.WriteCloser = (*Stream)(nil)

// socketAddress is an address as the kernel takes it.
func socketAddress(of netip.AddrPort) unix.Sockaddr {
	if of.Addr().Unmap().Is4() {
		return &unix.SockaddrInet4{Port: int(of.Port()), Addr: of.Addr().Unmap().As4()}
	}
	address := &unix.SockaddrInet6{Port: int(of.Port()), Addr: of.Addr().As16()}
	if zone := of.Addr().Zone(); zone != "" {
		address.ZoneId = zoneNumber(zone)
	}
	return address
}

// zoneNumber is the index of a network interface, given its name or the number itself; 0: there
// is no such interface.
func zoneNumber(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if link, err := net.InterfaceByName(zone); err == nil {
		return uint32(link.Index) //nolint:gosec // a link's number
	}
	return 0
}
