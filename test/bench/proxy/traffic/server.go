package traffic

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ServerRole is the argument of a process that does [Serve].
	ServerRole = "server"
	// bulkBytes is how much a side of a bulk transfer writes or reads at once.
	bulkBytes = 256 << 10
	// backlog is how many connections may wait to be accepted.
	backlog = 4096
)

// Serve is the server behind the proxies: it echoes, sends and takes, until it is
// told to end.
func Serve(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	s := &server{buffer: make([]byte, bulkBytes)}
	var err error
	if s.poller, err = newPoller(); err != nil {
		return err
	}
	for _, kind := range []int{EchoPort, SourcePort, SinkPort} {
		if err := s.listen(kind); err != nil {
			return err
		}
	}
	failed := make(chan error, 2)
	go func() { failed <- echoDatagrams(ctx) }()
	go func() { failed <- s.run() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// server is all TCP ports.
type server struct {
	poller *poller
	// kinds are the ports that connections and, below 0, listening sockets are of, by
	// their descriptors.
	kinds  [MaxFiles]int
	buffer []byte
}

func (s *server) listen(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("prepare a socket: %w", err)
	}
	if err := unix.Bind(fd, loopback(ServerBase+port)); err != nil {
		return fmt.Errorf("bind the server's port %d: %w", ServerBase+port, err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fmt.Errorf("listen on port %d: %w", ServerBase+port, err)
	}
	s.kinds[fd] = -port
	return s.poller.add(fd, unix.EPOLLIN)
}

func (s *server) run() error {
	for {
		events, err := s.poller.wait(time.Hour)
		if err != nil {
			return err
		}
		for i := range events {
			fd := int(events[i].Fd)
			kind := s.kinds[fd]
			if kind < 0 {
				if err := s.accept(fd, -kind); err != nil {
					return err
				}
				continue
			}
			if !s.serve(fd, kind) {
				_ = unix.Close(fd)
			}
		}
	}
}

func (s *server) accept(listening, kind int) error {
	for {
		fd, _, err := unix.Accept4(listening, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case again(err), errors.Is(err, unix.ECONNABORTED):
			return nil
		case err != nil:
			return fmt.Errorf("accept a connection: %w", err)
		}
		if err := prepare(fd, unix.SOCK_STREAM); err != nil {
			return err
		}
		s.kinds[fd] = kind
		events := uint32(unix.EPOLLIN)
		if kind == SourcePort {
			events = unix.EPOLLOUT
		}
		if err := s.poller.add(fd, events); err != nil {
			return err
		}
	}
}

// serve does what there is to do for a connection; false: it is over.
func (s *server) serve(fd, kind int) bool {
	if kind == SourcePort {
		_, err := unix.Write(fd, s.buffer)
		return err == nil || again(err)
	}
	n, err := unix.Read(fd, s.buffer)
	if err != nil || n == 0 {
		return err != nil && again(err)
	}
	if kind == EchoPort {
		// Echoes are small, and there is always room for one.
		if written, err := unix.Write(fd, s.buffer[:n]); err != nil || written < n {
			return false
		}
	}
	return true
}
