package conn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// pipeBytes is how much of one connection may be in a pipe.
	pipeBytes = 256 << 10
	// maxPipes bounds the pipes of all connections: their descriptors, and the memory
	// that the kernel grants a user's pipes, a quarter of which they are.
	maxPipes = 64
)

// ErrNoPipe says that all pipes are in use.
var ErrNoPipe = errors.New("no pipe is free")

// pipe is where the kernel keeps what is on its way between two sockets.
type pipe struct {
	read, write int
	// held is what is in it.
	held int
}

// pipePool lends pipes, and makes them as they are needed.
type pipePool struct {
	free chan *pipe
	made atomic.Int32
}

var pipes = &pipePool{free: make(chan *pipe, maxPipes)}

// get borrows a pipe; nil: there is none.
func (p *pipePool) get() *pipe {
	select {
	case free := <-p.free:
		return free
	default:
	}
	if p.made.Add(1) <= maxPipes {
		var ends [2]int
		if unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK) == nil {
			// Where that is refused the pipe is smaller and does as well.
			_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, pipeBytes)
			return &pipe{read: ends[0], write: ends[1]}
		}
	}
	p.made.Add(-1)
	return nil
}

// put gives it back. What a connection that failed left in it is nobody else's.
func (p *pipePool) put(used *pipe) {
	if used.held == 0 {
		p.free <- used
		return
	}
	_ = unix.Close(used.read)
	_ = unix.Close(used.write)
	p.made.Add(-1)
}

// Splicer moves bytes between two connections inside the kernel. It borrows a pipe
// only while there are bytes. It is for one goroutine.
type Splicer struct {
	src, dst syscall.RawConn
	pipe     *pipe
	err      error
	// in and out are method values, made once.
	in, out func(fd uintptr) bool
}

// NewSplicer makes a splicer of two TCP connections.
func NewSplicer(dst, src syscall.Conn) (*Splicer, error) {
	s := &Splicer{}
	var err, failed error
	s.src, err = src.SyscallConn()
	s.dst, failed = dst.SyscallConn()
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("reaching the sockets: %w", err)
	}
	s.in, s.out = s.fill, s.drain
	return s, nil
}

// Next waits for bytes and moves them. N is how many were moved, which is less than
// were taken only where there was an error in moving them on. The error is io.EOF at
// the end of the source, and ErrNoPipe where nothing was taken for want of one.
func (s *Splicer) Next() (n int, err error) {
	s.err = nil
	err = s.src.Read(s.in)
	if err == nil {
		err = s.err
	}
	if s.pipe == nil {
		return 0, err
	}
	defer func() {
		pipes.put(s.pipe)
		s.pipe = nil
	}()
	if err != nil {
		return 0, err
	}
	taken := s.pipe.held
	if taken == 0 {
		return 0, io.EOF
	}
	err = s.dst.Write(s.out)
	if err == nil {
		err = s.err
	}
	return taken - s.pipe.held, err
}

// fill takes from the source once; false: wait until there is something.
func (s *Splicer) fill(fd uintptr) bool {
	if s.pipe = pipes.get(); s.pipe == nil {
		s.err = ErrNoPipe
		return true
	}
	n, err := splice(int(fd), s.pipe.write, pipeBytes)
	if errors.Is(err, unix.EAGAIN) {
		pipes.put(s.pipe)
		s.pipe = nil
		return false
	}
	s.pipe.held, s.err = n, err
	return true
}

// drain passes on what is in the pipe; false: wait until there is room.
func (s *Splicer) drain(fd uintptr) bool {
	for s.pipe.held > 0 {
		n, err := splice(s.pipe.read, int(fd), s.pipe.held)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil {
			s.err = err
			return true
		}
		s.pipe.held -= n
	}
	return true
}

// splice moves bytes without waiting for either end, which is one socket and one pipe.
func splice(from, to, bytes int) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(bytes), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, os.NewSyscallError("splice", errno)
		}
	}
}
