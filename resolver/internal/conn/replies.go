package conn

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Replier sends to one client of a UDP port, and allocates nothing. It is for one
// goroutine.
type Replier struct {
	packets *Packets
	name    unix.RawSockaddrInet6
	source  []byte
	length  uint32
}

// Replier makes one that sends from the address in source, as Source gives it.
func (p *Packets) Replier(source []byte, to netip.AddrPort) Replier {
	r := Replier{packets: p, source: source}
	if p.ipv6 {
		r.name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: networkOrder(to.Port()), Addr: to.Addr().As16()}
		if scope, err := strconv.ParseUint(to.Addr().Zone(), 10, 32); err == nil {
			r.name.Scope_id = uint32(scope)
		}
		r.length = unix.SizeofSockaddrInet6
	} else {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.name)) //nolint:gosec // it is larger
		*v4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: networkOrder(to.Port()), Addr: to.Addr().Unmap().As4()}
		r.length = unix.SizeofSockaddrInet4
	}
	return r
}

// address sets a message's destination to the client, and its source address.
func (r *Replier) address(h *unix.Msghdr) {
	h.Name = (*byte)(unsafe.Pointer(&r.name)) //nolint:gosec // the kernel reads the address there
	h.Namelen = r.length
	h.Control = nil
	h.SetControllen(len(r.source))
	if len(r.source) > 0 {
		h.Control = &r.source[0]
	}
}

// Send sends a datagram. It is for any goroutine.
func (r *Replier) Send(datagram []byte) error {
	var h unix.Msghdr
	var iov unix.Iovec
	iov.Base = unsafe.SliceData(datagram) //nolint:gosec // the kernel reads there
	iov.SetLen(len(datagram))
	h.Iov = &iov
	h.SetIovlen(1)
	r.address(&h)
	r.packets.mu.RLock()
	defer r.packets.mu.RUnlock()
	if r.packets.closed {
		return net.ErrClosed
	}
	errno := unix.EINTR
	for errno == unix.EINTR {
		_, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(r.packets.fd), uintptr(unsafe.Pointer(&h)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) //nolint:gosec // see above
	}
	if errno != 0 {
		return os.NewSyscallError("sendmsg", errno)
	}
	return nil
}

const (
	// repliesATime is how many replies are sent at once.
	repliesATime = 32
	// replyBytes is the size of most replies at most. There is room for repliesATime of that
	// size, or fewer larger ones.
	replyBytes = 2 << 10
)

// Replies gathers what backends send, so that one call passes it on to the clients. It is for
// one goroutine.
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

// Room is where the next datagram is to be written.
func (r *Replies) Room() []byte { return r.buffer[r.used : r.used+MaxDatagram] }

// Add adds the first n bytes of the room as a datagram for a client; full: there is no more
// room. The replier must not change until all is sent.
func (r *Replies) Add(n int, to *Replier) (full bool) {
	m := &r.messages[r.gathered]
	r.iovs[r.gathered].Base = &r.buffer[r.used]
	r.iovs[r.gathered].SetLen(n)
	to.address(&m.Hdr)
	r.gathered++
	r.used += n
	return r.gathered == repliesATime || r.used+MaxDatagram > len(r.buffer)
}

// Send sends all from a socket. It returns how many datagrams were sent, of how many bytes, and
// how many could not be sent and are lost.
func (r *Replies) Send(fd int) (sent, bytes, lost int) {
	for next := 0; next < r.gathered; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.messages[next])), //nolint:gosec // the kernel reads there
			uintptr(r.gathered-next), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		default:
			// The error is the first datagram's alone.
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
