package traffic

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for sockets.
type poller struct {
	fd     int
	events [512]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a poller: %w", err)
	}
	return &poller{fd: fd}, nil
}

// add waits for a socket from now on, for what events say.
func (p *poller) add(fd int, events uint32) error {
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("wait for a socket: %w", err)
	}
	return nil
}

// change waits for something else of a socket.
func (p *poller) change(fd int, events uint32) error {
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("wait for a socket: %w", err)
	}
	return nil
}

// wait gives the sockets with which something is the matter; none after the time.
// Below a millisecond it only looks.
func (p *poller) wait(most time.Duration) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.fd, p.events[:], int(most.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for sockets: %w", err)
	}
	return p.events[:n], nil
}

// ticker makes the poller's wait end in a fixed rhythm.
func (p *poller) ticker(every time.Duration) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a timer: %w", err)
	}
	step := unix.NsecToTimespec(every.Nanoseconds())
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: step, Value: step}, nil); err != nil {
		return fmt.Errorf("start a timer: %w", err)
	}
	return p.add(fd, unix.EPOLLIN)
}

func loopback(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
}

// readNow and writeNow are the kernel's calls for sockets that don't block, without the
// scheduler's leave to block, which costs about as much as a small one.
func readNow(fd int, b []byte) (int, error) { return now(unix.SYS_READ, fd, b) }

func writeNow(fd int, b []byte) (int, error) { return now(unix.SYS_WRITE, fd, b) }

func now(call uintptr, fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// again reports whether an error says that a socket has nothing, or no room, just now.
func again(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

// connected opens a socket to a port of this machine and waits until it is
// connected.
func connected(kind, port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.Connect(fd, loopback(port)); err != nil {
		return 0, fmt.Errorf("connect to port %d: %w", port, err)
	}
	return fd, prepare(fd, kind)
}

// prepare makes a socket as a program that cares for delay has it.
func prepare(fd, kind int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("prepare a socket: %w", err)
	}
	if kind&unix.SOCK_STREAM != 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("prepare a socket: %w", err)
		}
	}
	return nil
}
