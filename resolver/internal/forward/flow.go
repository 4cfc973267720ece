package forward

import (
	"os"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
)

// bulkChunks is how many full buffers in a row show bulk. From then on the bytes stay
// in the kernel, until less than one is there at once: that costs a third, whereas
// small messages gain nothing from it.
const bulkChunks = 8

// flow is one direction of a relay.
type flow struct {
	relay    *relay
	src, dst *end
	count    Counter
	// full is how many full buffers there were in a row.
	full int
	// What the destination has no room for is in the buffer, of which it is the rest,
	// or in the pipe. Nothing more is read meanwhile.
	buffer *[]byte
	rest   []byte
	pipe   *conn.Pipe
	ended  bool
}

// waits says that the destination has no room.
func (f *flow) waits() bool { return f.buffer != nil || f.pipe != nil }

// pump moves once what there is.
func (f *flow) pump() {
	if f.full >= bulkChunks {
		if pipe := conn.BorrowPipe(); pipe != nil {
			f.splice(pipe)
			return
		}
	}
	chunk := f.src.file.Loop().Buffer()[:conn.BufferBytes]
	n, errno := conn.RecvNow(f.src.file.FD(), chunk)
	if !f.some(n, errno, "recvfrom") {
		return
	}
	rest := f.send(chunk[:n])
	if len(rest) > 0 && !f.relay.closed {
		f.buffer = conn.Streams.Get()
		f.rest = (*f.buffer)[:copy(*f.buffer, rest)]
	}
}

// some notes what came of reading: false where it was nothing.
func (f *flow) some(n int, errno unix.Errno, call string) bool {
	f.full++
	if n < conn.BufferBytes {
		f.full = 0
	}
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		f.relay.fail(os.NewSyscallError(call, errno))
		return false
	case n == 0:
		// The other direction goes on. It fails when the other side is gone already,
		// which that direction will notice.
		f.ended = true
		_ = unix.Shutdown(f.dst.file.FD(), unix.SHUT_WR)
		return false
	}
	return true
}

// send gives the destination bytes, and returns those for which there is no room.
func (f *flow) send(b []byte) []byte {
	for len(b) > 0 {
		n, errno := conn.SendNow(f.dst.file.FD(), b)
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 {
			f.relay.fail(os.NewSyscallError("sendto", errno))
			break
		}
		f.moved(n)
		b = b[n:]
	}
	return b
}

func (f *flow) splice(pipe *conn.Pipe) {
	n, errno := pipe.Fill(f.src.file.FD())
	if !f.some(n, errno, "splice") {
		pipe.Return()
		return
	}
	f.pipe = pipe
	f.drain()
}

// drain gives the destination what it had no room for.
func (f *flow) drain() {
	if f.pipe == nil {
		if f.rest = f.send(f.rest); len(f.rest) == 0 {
			f.release()
		}
		return
	}
	held := f.pipe.Held()
	errno := f.pipe.Drain(f.dst.file.FD())
	f.moved(held - f.pipe.Held())
	switch errno {
	case 0:
		f.release()
	case unix.EAGAIN:
	default:
		f.relay.fail(os.NewSyscallError("splice", errno))
	}
}

func (f *flow) moved(n int) {
	if f.count != nil && n > 0 {
		f.count(n)
	}
}

// release gives back what the flow has borrowed.
func (f *flow) release() {
	if f.buffer != nil {
		conn.Streams.Put(f.buffer)
		f.buffer, f.rest = nil, nil
	}
	if f.pipe != nil {
		f.pipe.Return()
		f.pipe = nil
	}
}
