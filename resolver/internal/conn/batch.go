package conn

import (
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// batchSize is how many datagrams are received at once: at 16 a call costs half as
	// much a datagram as one call each, and more gain little.
	batchSize = 16
	// fewDatagrams is how many are received at once when they are large.
	fewDatagrams = 2
	// controlBytes has room for one packet-info message of either family.
	controlBytes = 64
)

// Batch is what one call receives. It has room for the largest datagrams, a MiB in
// all, and is for one goroutine.
type Batch struct {
	messages [batchSize]unix.Mmsghdr
	names    [batchSize]unix.RawSockaddrInet6
	iovs     [batchSize]unix.Iovec
	control  [batchSize][controlBytes]byte
	buffer   []byte
	// received is how many of them hold a datagram.
	received int
}

// NewBatch makes one with nothing in it.
func NewBatch() *Batch {
	b := &Batch{buffer: make([]byte, batchSize*MaxDatagram)}
	for i := range b.messages {
		b.iovs[i].Base = &b.buffer[i*MaxDatagram]
		b.iovs[i].SetLen(MaxDatagram)
		h := &b.messages[i].Hdr
		h.Name = (*byte)(unsafe.Pointer(&b.names[i])) //nolint:gosec // the kernel writes the address there
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Control = &b.control[i][0]
	}
	b.received = batchSize
	return b
}

// Len is how many datagrams there are.
func (b *Batch) Len() int { return b.received }

// receive receives up to most datagrams, and does not wait.
func (b *Batch) receive(fd int, most uintptr) unix.Errno {
	for i := range b.received {
		// The kernel wrote there how much of the room it used.
		b.messages[i].Hdr.Namelen = unix.SizeofSockaddrInet6
		b.messages[i].Hdr.SetControllen(controlBytes)
	}
	b.received = 0
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[0])), most, unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // see the batch's fields
		if errno == unix.EINTR {
			continue
		}
		if errno == 0 {
			b.received = int(n)
		}
		return errno
	}
}

// bytes is the total length of the datagrams.
func (b *Batch) bytes() (total int) {
	for i := range b.received {
		total += int(b.messages[i].Len)
	}
	return total
}

// Datagram is one of the datagrams received, with its sender and the address that it was sent
// to. That address is not valid where the kernel did not report it.
func (b *Batch) Datagram(i int) (datagram []byte, from netip.AddrPort, to netip.Addr) {
	m := &b.messages[i]
	at := i * MaxDatagram
	// Cut down by the kernel to what it wrote.
	control := b.control[i][:min(int(m.Hdr.Controllen), controlBytes)] //nolint:gosec // bounded
	return b.buffer[at : at+int(m.Len)], sender(&b.names[i]), parseDestination(control)
}

// sender is a datagram's source. IPv4-mapped addresses are returned as IPv4.
func sender(name *unix.RawSockaddrInet6) netip.AddrPort {
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name)) //nolint:gosec // the family says so
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), networkOrder(v4.Port))
	}
	address := netip.AddrFrom16(name.Addr).Unmap()
	if name.Scope_id != 0 && address.Is6() {
		// Only link-local senders have a scope; their zone costs an allocation.
		address = address.WithZone(strconv.Itoa(int(name.Scope_id)))
	}
	return netip.AddrPortFrom(address, networkOrder(name.Port))
}
