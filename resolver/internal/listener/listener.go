// Package listener owns the resolver's sockets: one for each service port,
// opened as soon as it is wanted, tried again while it can't be, and closed when
// it isn't wanted any more. What arrives is handed to whoever asked for it.
package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
)

// Times of listeners.
const (
	// openFirst and openLast are the pauses between tries to open a port.
	openFirst = 50 * time.Millisecond
	openLast  = 5 * time.Second
	// acceptFirst and acceptLast are the pauses after errors of a port that is
	// open, such as too many open files.
	acceptFirst = 5 * time.Millisecond
	acceptLast  = time.Second

	keepAliveIdle     = time.Minute
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 4
)

// KeepAlive finds peers that are gone without a word.
var KeepAlive = net.KeepAliveConfig{
	Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
}

// Socket is what a port is opened as.
type Socket interface {
	// Serve takes clients until the socket is closed, and then gives nil.
	Serve() error
	// Close takes no new clients and ends Serve, unless clients that were taken
	// still need it. It does not wait.
	Close() error
}

// Open opens a port.
type Open func(ctx context.Context) (Socket, error)

// Listener keeps one port open.
type Listener struct {
	log    logr.Logger
	open   Open
	ctx    context.Context //nolint:containedctx // the listener's own life
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	socket Socket
	failed error
	closed bool
}

// Start opens a port, and goes on trying when that fails. It returns after the
// first try.
func Start(log logr.Logger, open Open) *Listener {
	l := &Listener{log: log, open: open, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.try()
	go l.run()
	return l
}

// State says whether the port is open and, if it isn't, why.
func (l *Listener) State() (listening bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket != nil && l.failed == nil, l.failed
}

// Close ends the listener. A TCP port is free afterwards.
func (l *Listener) Close() {
	l.cancel()
	l.mu.Lock()
	l.closed = true
	socket := l.socket
	l.mu.Unlock()
	if socket != nil {
		_ = socket.Close()
	}
}

// Ended says that Wait would not wait.
func (l *Listener) Ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Wait waits until a closed listener takes nothing more.
func (l *Listener) Wait() { <-l.done }

func (l *Listener) try() Socket {
	socket, err := l.open(l.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.closed {
		_ = socket.Close()
		err = net.ErrClosed
	}
	l.failed = err
	if err != nil {
		socket = nil
	}
	l.socket = socket
	return socket
}

func (l *Listener) run() {
	defer close(l.done)
	defer utilruntime.HandleCrash()
	pause := openFirst
	socket := l.current()
	for {
		if socket == nil {
			if !sleep(l.ctx, pause) {
				return
			}
			pause = min(2*pause, openLast)
			socket = l.try()
			continue
		}
		err := socket.Serve()
		if l.ctx.Err() != nil {
			return
		}
		// The socket ended by itself, which it should not.
		_ = socket.Close()
		if err == nil {
			err = errors.New("the socket ended")
		}
		l.log.Error(err, "A port is opened again")
		l.mu.Lock()
		l.socket, l.failed = nil, err
		l.mu.Unlock()
		socket, pause = nil, openFirst
	}
}

func (l *Listener) current() Socket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket
}

// sleep waits for a time; false: the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Prepare sets KeepAlive on a socket, and has it send at once what it is given.
func Prepare(fd int) error {
	var failed error
	for _, option := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds())},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
	} {
		failed = errors.Join(failed, unix.SetsockoptInt(fd, option.level, option.name, option.value))
	}
	return os.NewSyscallError("setsockopt", failed)
}

func prepare(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = Prepare(int(fd)) })
	return errors.Join(err, failed)
}

// Clients is who a TCP port's connections are given to, as they are accepted. It must
// not wait.
type Clients func(fd int, from netip.AddrPort)

// Conns gives clients to the net package, and what that makes of them to handle.
func Conns(handle func(*net.TCPConn)) Clients {
	return func(fd int, _ netip.AddrPort) {
		c, err := conn.Give(fd)
		if err != nil {
			return
		}
		_ = c.SetKeepAliveConfig(KeepAlive)
		handle(c)
	}
}

// TCP opens a TCP port. Host is empty for all addresses.
func TCP(host string, port int, clients Clients) Open {
	return func(ctx context.Context) (Socket, error) {
		// What is set on the listening socket holds for its connections, which saves
		// setting it on each.
		config := net.ListenConfig{KeepAlive: -1, Control: prepare}
		// No player's network takes several paths at once, and such sockets take longer
		// to accept from.
		config.SetMultipathTCP(false)
		opened, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("opening TCP port %d: %w", port, err)
		}
		fd, err := conn.Take(opened.(*net.TCPListener))
		if err != nil {
			return nil, fmt.Errorf("opening TCP port %d: %w", port, err)
		}
		s := &tcpSocket{ctx: ctx, file: os.NewFile(uintptr(fd), "listener"), clients: clients}
		if s.raw, err = s.file.SyscallConn(); err != nil {
			return nil, errors.Join(fmt.Errorf("opening TCP port %d: %w", port, err), s.file.Close())
		}
		return s, nil
	}
}

type tcpSocket struct {
	ctx     context.Context //nolint:containedctx // its listener's life
	file    *os.File
	raw     syscall.RawConn
	clients Clients
}

func (s *tcpSocket) Serve() error {
	pause := acceptFirst
	for {
		fd, from, err := s.accept()
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			// The port stays open: clients wait in the kernel's queue meanwhile.
			if !sleep(s.ctx, pause) {
				return nil
			}
			pause = min(2*pause, acceptLast)
			continue
		}
		pause = acceptFirst
		s.clients(fd, from)
	}
}

// accept goes without the net package, which prepares each connection for whatever
// might be done with it.
func (s *tcpSocket) accept() (fd int, from netip.AddrPort, err error) {
	var sender unix.Sockaddr
	var failed error
	err = s.raw.Read(func(listening uintptr) bool {
		for {
			fd, sender, failed = unix.Accept4(int(listening), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if !errors.Is(failed, unix.EINTR) && !errors.Is(failed, unix.ECONNABORTED) {
				return !errors.Is(failed, unix.EAGAIN)
			}
		}
	})
	if err == nil {
		err = os.NewSyscallError("accept4", failed)
	}
	return fd, addressOf(sender), err
}

// addressOf is an IPv4 address as such.
func addressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)) //nolint:gosec // a port
	case *unix.SockaddrInet6:
		address := netip.AddrFrom16(a.Addr).Unmap()
		if a.ZoneId != 0 && address.Is6() {
			address = address.WithZone(strconv.Itoa(int(a.ZoneId)))
		}
		return netip.AddrPortFrom(address, uint16(a.Port)) //nolint:gosec // a port
	}
	return netip.AddrPort{}
}

func (s *tcpSocket) Close() error { return s.file.Close() }
