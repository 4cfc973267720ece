package conn

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// pipeBytes is how much of one connection may be in a pipe.
	pipeBytes = 256 << 10
	// maxPipes bounds the pipes of all connections: their descriptors, and their memory, which
	// is a quarter of what the kernel allows a user's pipes.
	maxPipes = 64
)

// Pipe is where the kernel keeps what is on its way between two sockets.
type Pipe struct {
	read, write int
	// held is how many bytes are in it.
	held int
}

// pipePool lends pipes, and makes them as they are needed.
type pipePool struct {
	free chan *Pipe
	made atomic.Int32
}

var pipes = &pipePool{free: make(chan *Pipe, maxPipes)}

// BorrowPipe gives a pipe; nil: all are in use.
func BorrowPipe() *Pipe { return pipes.get() }

// Return gives the pipe back. What is in it still is lost.
func (p *Pipe) Return() { pipes.put(p) }

// Held is how many bytes are in the pipe.
func (p *Pipe) Held() int { return p.held }

// Fill moves what a socket has received into the pipe, most bytes at the most, and returns how
// many; 0 without an error is the end of the stream.
func (p *Pipe) Fill(socket int, most int64) (int, unix.Errno) {
	n, errno := splice(socket, p.write, int(min(most, pipeBytes)))
	p.held += n
	return n, errno
}

// Drain moves what is in the pipe to a socket, as long as there is room.
func (p *Pipe) Drain(socket int) unix.Errno {
	for p.held > 0 {
		n, errno := splice(p.read, socket, p.held)
		if errno != 0 {
			return errno
		}
		p.held -= n
	}
	return 0
}

// get borrows a pipe; nil: there is none.
func (p *pipePool) get() *Pipe {
	select {
	case free := <-p.free:
		return free
	default:
	}
	if p.made.Add(1) <= maxPipes {
		var ends [2]int
		if unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK) == nil {
			// Where that is refused the pipe is smaller, and works as well.
			_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, pipeBytes)
			return &Pipe{read: ends[0], write: ends[1]}
		}
	}
	p.made.Add(-1)
	return nil
}

// put gives a pipe back. Bytes that a failed connection left in it must reach nobody else.
func (p *pipePool) put(used *Pipe) {
	if used.held == 0 {
		p.free <- used
		return
	}
	_ = unix.Close(used.read)
	_ = unix.Close(used.write)
	p.made.Add(-1)
}

// splice moves bytes without waiting for either end: one is a socket, the other a pipe.
func splice(from, to, bytes int) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(bytes), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
