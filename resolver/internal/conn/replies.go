package conn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// repliesATime is how many replies are sent at once.
	repliesATime = 32
	// replyBytes are what most replies have at most: there is room for so many such,
	// or fewer larger ones.
	replyBytes = 2 << 10
)

// Replies gathers what servers send, so that one call passes it on to the clients. It
// is for one goroutine.
type Replies struct {
	messages [repliesATime]unix.Mmsghdr
	iovs     [repliesATime]unix.Iovec
	buffer   [repliesATime*replyBytes + MaxDatagram]byte
	// gathered is how many there are, in the first used bytes.
	gathered, used int
}

// NewReplies makes one with nothing in it.
func NewReplies() *Replies {
	r := &Replies{}
	for i := range r.messages {
		h := &r.messages[i].Hdr
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
	}
	return r
}

// Room is where the next datagram is to be.
func (r *Replies) Room() []byte { return r.buffer[r.used : r.used+MaxDatagram] }

// Add adds what is in the first n bytes of the room, for a client; full says that
// there is no more room. The replier is not to change until all is sent.
func (r *Replies) Add(n int, to *Replier) (full bool) {
	m := &r.messages[r.gathered]
	r.iovs[r.gathered].Base = &r.buffer[r.used]
	r.iovs[r.gathered].SetLen(n)
	to.address(&m.Hdr)
	r.gathered++
	r.used += n
	return r.gathered == repliesATime || r.used+MaxDatagram > len(r.buffer)
}

// Send sends all from a socket. It tells how many were sent, and of how many bytes, and
// how many could not be, and are lost.
func (r *Replies) Send(fd int) (sent, bytes, lost int) {
	for next := 0; next < r.gathered; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.messages[next])), //nolint:gosec // the kernel reads there
			uintptr(r.gathered-next), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		default:
			// It is said of the first one alone.
			next++
			lost++
			continue
		}
		for i := next; i < next+int(n); i++ {
			bytes += int(r.messages[i].Len)
		}
		sent += int(n)
		next += int(n)
	}
	r.gathered, r.used = 0, 0
	return sent, bytes, lost
}
