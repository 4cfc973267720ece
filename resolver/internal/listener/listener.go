// Package listener owns the resolver's sockets: one for each service port,
// opened as soon as it is wanted, tried again while it can't be, and closed when
// it isn't wanted any more. What arrives is handed to whoever asked for it.
package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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

// keepAlive sets KeepAlive on a socket.
func keepAlive(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		for _, option := range []struct{ level, name, value int }{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle.Seconds())},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds())},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
		} {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), option.level, option.name, option.value))
		}
	})
	return errors.Join(err, os.NewSyscallError("setsockopt", failed))
}

// TCP opens a TCP port whose connections are given to handle, each in a
// goroutine that handle starts. Host is empty for all addresses.
func TCP(host string, port int, handle func(*net.TCPConn)) Open {
	return func(ctx context.Context) (Socket, error) {
		// What is set on the listening socket holds for its connections, which saves
		// setting it on each.
		config := net.ListenConfig{KeepAlive: -1, Control: keepAlive}
		// No player's network takes several paths at once, and such sockets take longer
		// to accept from.
		config.SetMultipathTCP(false)
		ln, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("opening TCP port %d: %w", port, err)
		}
		return &tcpSocket{ctx: ctx, ln: ln.(*net.TCPListener), handle: handle}, nil
	}
}

type tcpSocket struct {
	ctx    context.Context //nolint:containedctx // its listener's life
	ln     *net.TCPListener
	handle func(*net.TCPConn)
}

func (s *tcpSocket) Serve() error {
	pause := acceptFirst
	for {
		c, err := s.ln.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
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
		s.handle(c)
	}
}

func (s *tcpSocket) Close() error { return s.ln.Close() }
