package conn

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// repliesATime is how many replies are sent at once.
const repliesATime = 32

// Replies gathers what servers send, so that one call passes it on to the clients. It
// is borrowed only while there is something, and for one goroutine.
type Replies struct {
	messages [repliesATime]unix.Mmsghdr
	iovs     [repliesATime]unix.Iovec
	buffer   []byte
	// gathered is how many there are.
	gathered int
}

var replies = sync.Pool{New: func() any { return newReplies() }}

func newReplies() *Replies {
	r := &Replies{buffer: make([]byte, repliesATime*MaxDatagram)}
	for i := range r.messages {
		r.iovs[i].Base = &r.buffer[i*MaxDatagram]
		h := &r.messages[i].Hdr
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
	}
	return r
}

// BorrowReplies gives one with nothing in it.
func BorrowReplies() *Replies { return replies.Get().(*Replies) }

// Return gives it back.
func (r *Replies) Return() {
	r.gathered = 0
	replies.Put(r)
}

// Room is where the next datagram is to be.
func (r *Replies) Room() []byte {
	at := r.gathered * MaxDatagram
	return r.buffer[at : at+MaxDatagram]
}

// Add adds what is in the first n bytes of the room, for a client; full says that
// there is no more room. The replier is not to change until all is sent.
func (r *Replies) Add(n int, to *Replier) (full bool) {
	m := &r.messages[r.gathered]
	r.iovs[r.gathered].SetLen(n)
	to.address(&m.Hdr)
	r.gathered++
	return r.gathered == repliesATime
}

// Send sends all from a socket. It tells how many were sent, and of how many bytes;
// the others are lost.
func (r *Replies) Send(fd int) (sent, bytes int) {
	for next := 0; next < r.gathered; {
		var n int
		errno := withRoom(fd, func() unix.Errno {
			done, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.messages[next])), //nolint:gosec // the kernel reads there
				uintptr(r.gathered-next), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
			n = int(done)
			return errno
		})
		if errno != 0 {
			// It is said of the first one alone.
			next++
			continue
		}
		for i := next; i < next+n; i++ {
			bytes += int(r.messages[i].Len)
		}
		sent += n
		next += n
	}
	r.gathered = 0
	return sent, bytes
}
