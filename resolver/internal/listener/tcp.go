package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

const (
	// acceptPause follows an error of an open port, such as too many open files.
	acceptPause = 50 * time.Millisecond
)

func prepare(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = conn.Prepare(int(fd)) })
	return errors.Join(err, failed)
}

// Clients takes a TCP port's connections, on the loop that has accepted them. It must not wait.
type Clients func(on *loop.Loop, fd int, from netip.AddrPort)

// OpenTCP opens a TCP port. Host is empty for all addresses.
func OpenTCP(host string, port int, clients Clients) (Socket, error) {
	// Options of the listening socket are inherited by its connections, which saves setting
	// them on each.
	config := net.ListenConfig{KeepAlive: -1, Control: prepare}
	// No player's network uses several paths at once, and MPTCP sockets take longer to accept
	// from.
	config.SetMultipathTCP(false)
	opened, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("opening TCP port %d: %w", port, err)
	}
	fd, err := conn.Take(opened.(*net.TCPListener))
	if err != nil {
		return nil, fmt.Errorf("opening TCP port %d: %w", port, err)
	}
	s := &tcpSocket{clients: clients}
	if err := s.file.OpenShared(fd, s); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("opening TCP port %d: %w", port, err)
	}
	return s, nil
}

// tcpSocket accepts in all loops, because a single one would get no more processor time than
// each of the processes that it serves. It does so without the net package, which prepares each
// connection for whatever might be done with it.
type tcpSocket struct {
	clients Clients

	// mu keeps the socket open while a loop accepts.
	mu     sync.RWMutex
	file   loop.File
	closed bool
}

// ended is closed from the start: connections don't need the port.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Serve implements Socket.
func (s *tcpSocket) Serve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	return s.file.Want(loop.In)
}

// resume is Serve after a pause, which is longer where that fails.
func (s *tcpSocket) resume() {
	if s.Serve() != nil {
		time.AfterFunc(acceptPause, s.resume)
	}
}

// Close implements Socket.
func (s *tcpSocket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.file.Close()
	}
	return nil
}

// Cut implements Socket.
func (s *tcpSocket) Cut() {}

// Ended implements Socket.
func (s *tcpSocket) Ended() <-chan struct{} { return ended }

// Ready implements loop.Handler. It takes one client: the loop's other files have their turn
// before the next one.
func (s *tcpSocket) Ready(on *loop.Loop, _ uint32) {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return
	}
	fd, from, err := unix.Accept4(s.file.FD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	s.mu.RUnlock()
	switch {
	case err == nil:
		s.clients(on, fd, conn.AddressOf(from))
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EAGAIN):
	default:
		s.pause()
	}
}

// pause leaves clients in the kernel's queue for a while.
func (s *tcpSocket) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = s.file.Want(0)
		time.AfterFunc(acceptPause, s.resume)
	}
}
