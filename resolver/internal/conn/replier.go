package conn

import (
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
	iov     unix.Iovec
	msg     unix.Msghdr
	err     error
	// attempt is the method value, made once.
	attempt func(fd uintptr) bool
}

// Replier makes one that sends from the address in source, as Source gives it.
func (p *Packets) Replier(source []byte, to netip.AddrPort) *Replier {
	r := &Replier{packets: p, source: source}
	r.attempt = r.send
	if p.ipv6 {
		r.name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: networkOrder(to.Port()), Addr: to.Addr().As16()}
		if scope, err := strconv.ParseUint(to.Addr().Zone(), 10, 32); err == nil {
			r.name.Scope_id = uint32(scope)
		}
		r.msg.Namelen = unix.SizeofSockaddrInet6
	} else {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.name)) //nolint:gosec // it is larger
		*v4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: networkOrder(to.Port()), Addr: to.Addr().Unmap().As4()}
		r.msg.Namelen = unix.SizeofSockaddrInet4
	}
	r.msg.Name = (*byte)(unsafe.Pointer(&r.name)) //nolint:gosec // the kernel reads the address there
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	if len(source) > 0 {
		r.msg.Control = &r.source[0]
		r.msg.SetControllen(len(source))
	}
	return r
}

// Send sends a datagram.
func (r *Replier) Send(datagram []byte) error {
	r.iov.Base = unsafe.SliceData(datagram) //nolint:gosec // the kernel reads there
	r.iov.SetLen(len(datagram))
	r.err = nil
	err := r.packets.raw.Write(r.attempt)
	r.iov.Base = nil
	if err == nil {
		err = r.err
	}
	return err
}

// send tries once; false: wait until there is room.
func (r *Replier) send(fd uintptr) bool {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) //nolint:gosec // see the replier's fields
		switch errno {
		case 0:
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			r.err = os.NewSyscallError("sendmsg", errno)
			return true
		}
	}
}
