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

// address has a message go to the client.
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
