package conn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// ReceiveBytes is the size of a UDP socket's receive buffer, as far as the node allows it.
	ReceiveBytes = 1 << 20
	// batchSize is how many datagrams are received at once: at 16 a call costs half as
	// much a datagram as one call each, and more gain little.
	batchSize = 16
	// fewDatagrams is how many are received at once when they are large.
	fewDatagrams = 2
	// controlBytes has room for one packet-info message of either family.
	controlBytes = 64
)

// Packets is a UDP socket on all addresses of both families. It reports the address that each
// datagram was sent to, so that replies can come from there. Receive is for one goroutine, Send
// for any number.
type Packets struct {
	fd, port int
	ipv6     bool
	// large is set while the datagrams received last were large in total. Of such, fewer are
	// received at once, or others would wait for long.
	large bool

	// mu keeps the socket open while another goroutine than the one that closes it sends.
	mu     sync.RWMutex
	closed bool
}

// ListenPackets opens a UDP port. Host is empty for all addresses.
func ListenPackets(host string, port int) (*Packets, error) {
	p := &Packets{}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			// The address family decides which kind of packet info there is.
			domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
			if err != nil {
				failed = os.NewSyscallError("getsockopt", err)
				return
			}
			if domain == unix.AF_INET6 {
				p.ipv6 = true
				failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
				return
			}
			failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1))
		})
		return errors.Join(err, failed)
	}}
	opened, err := config.ListenPacket(context.Background(), "udp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, unix.EADDRINUSE) && sources.shares(port) {
		// Session sockets on the same port are connected, and receive only their own peer's
		// datagrams.
		own := config.Control
		config.Control = func(network, address string, raw syscall.RawConn) error {
			return errors.Join(own(network, address, raw), shared(network, address, raw))
		}
		opened, err = config.ListenPacket(context.Background(), "udp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
	if err != nil {
		return nil, fmt.Errorf("opening UDP port %d: %w", port, err)
	}
	socket := opened.(*net.UDPConn)
	// One socket receives and sends for all of the port's clients. The kernel allows what the
	// node is configured for, and takes memory only for datagrams that wait.
	_ = socket.SetReadBuffer(ReceiveBytes)
	_ = socket.SetWriteBuffer(ReceiveBytes)
	p.port = socket.LocalAddr().(*net.UDPAddr).Port
	if p.fd, err = Take(socket); err != nil {
		return nil, fmt.Errorf("opening UDP port %d: %w", port, err)
	}
	sources.listen(p.port)
	return p, nil
}

// Port is the socket's port.
func (p *Packets) Port() int { return p.port }

// FD is the socket's file descriptor. Whoever closes it calls Closing first.
func (p *Packets) FD() int { return p.fd }

// Closing is called before the socket is closed: nothing is sent from now on.
func (p *Packets) Closing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	sources.closed(p.port)
}

// Receive receives what has arrived into a batch, and doesn't wait.
func (p *Packets) Receive(b *Batch) unix.Errno {
	for i := range b.received {
		// The kernel wrote there how much of the room it used.
		b.messages[i].Hdr.Namelen = unix.SizeofSockaddrInet6
		b.messages[i].Hdr.SetControllen(controlBytes)
	}
	b.received = 0
	most := uintptr(batchSize)
	if p.large {
		most = fewDatagrams
	}
	n, errno := uintptr(0), unix.EINTR
	for errno == unix.EINTR {
		n, _, errno = unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(p.fd), uintptr(unsafe.Pointer(&b.messages[0])), most, unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // see the batch's fields
	}
	if errno == 0 {
		b.received = int(n)
		total := 0
		for i := range b.received {
			total += int(b.messages[i].Len)
		}
		p.large = total > MaxDatagram
	}
	return errno
}

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

func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

// parseDestination finds the packet-info message.
func parseDestination(control []byte) netip.Addr {
	const header = unix.SizeofCmsghdr
	for len(control) >= header {
		length := binary.NativeEndian.Uint64(control)
		level := int32(binary.NativeEndian.Uint32(control[8:])) //nolint:gosec // a bit pattern
		kind := int32(binary.NativeEndian.Uint32(control[12:])) //nolint:gosec // a bit pattern
		if length < header || length > uint64(len(control)) {
			break
		}
		data := control[header:length]
		switch {
		case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// Interface index, local address, destination address of the header.
			return netip.AddrFrom4([4]byte(data[8:12]))
		case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(data[:16]))
		}
		aligned := (length + 7) &^ 7
		if aligned >= uint64(len(control)) {
			break
		}
		control = control[aligned:]
	}
	return netip.Addr{}
}

// Source is the control message that makes replies come from an address; nil when the address
// isn't known: then the kernel chooses.
func (p *Packets) Source(to netip.Addr) []byte {
	switch {
	case !to.IsValid() || to.IsUnspecified() || to.IsMulticast():
		return nil
	case p.ipv6:
		info := unix.Inet6Pktinfo{Addr: to.As16()}
		return unix.PktInfo6(&info)
	case to.Is4():
		info := unix.Inet4Pktinfo{Spec_dst: to.As4()}
		return unix.PktInfo4(&info)
	}
	return nil
}

// Send sends a datagram to a client, from the address in source.
func (p *Packets) Send(datagram, source []byte, to netip.AddrPort) error {
	r := p.Replier(source, to)
	return r.Send(datagram)
}
